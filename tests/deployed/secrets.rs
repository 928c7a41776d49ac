//! Secrets in Secrets Manager: resolved when a function starts, read again in time and on doubt, and said clearly when they are
//! not to be had.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::config::Credentials;
use aws_sdk_secretsmanager::Client;
use domain::id::PrId;
use fakes::{FakeSettings, Fakes, NewPullRequest};
use jiff::{SignedDuration, Timestamp};
use platform::aws::fetch_with;
use platform::clients::Clients;
use platform::env::Environment;
use platform::secrets::{SecretEnv, SecretError, SecretRefresher};
use platform::transport::ApiError;
use serde_json::{Value, json};
use tests::local_aws::Ministack;

use crate::stack::python;

struct Variables(BTreeMap<&'static str, String>);

impl Environment for Variables {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }
}

fn variables<const N: usize>(variables: [(&'static str, &str); N]) -> Variables {
    Variables(variables.into_iter().map(|(name, value)| (name, value.to_owned())).collect())
}

async fn client_as(key: &str, secret: &str) -> Client {
    let config = aws_config::defaults(BehaviorVersion::latest()).region(Region::new("us-east-1"));
    let who = Credentials::new(key, secret, None, None, "a test");
    let config = config.credentials_provider(who).endpoint_url(Ministack::guarded().endpoint()).load().await;
    Client::new(&config)
}

async fn client() -> Client {
    client_as("test", "test").await
}

async fn keep(name: &str, fields: &Value) {
    client().await.create_secret().name(name).secret_string(fields.to_string()).send().await.unwrap();
}

async fn rotate(name: &str, fields: &Value) {
    client().await.put_secret_value().secret_id(name).secret_string(fields.to_string()).send().await.unwrap();
}

fn later(secs: i64) -> Timestamp {
    "2036-03-03T09:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(secs)
}

#[tokio::test]
async fn references_are_resolved_and_everything_else_is_as_it_was() {
    keep("resolve/one", &json!({"hook": "s1", "id": 4711})).await;
    keep("resolve/two", &json!({"bot": "s2"})).await;
    let set = variables([
        ("SUTURE_WEBHOOK_SECRET", "secret:resolve/one#hook"),
        ("SUTURE_GITHUB_APP_ID", "secret:resolve/one#id"),
        ("SUTURE_BOT_SECRET", "secret:resolve/two#bot"),
        ("SUTURE_JENKINS_TOKEN", "plain"),
        ("SUTURE_STATE_TABLE", "secret:this is no secret#at all"),
    ]);
    let vault = SecretEnv::resolve(set, fetch_with(client().await), later(0)).await.unwrap();
    let got = |name: &str| vault.get(name).unwrap_or_default();
    assert_eq!((got("SUTURE_WEBHOOK_SECRET"), got("SUTURE_BOT_SECRET")), ("s1".to_owned(), "s2".to_owned()));
    assert_eq!((got("SUTURE_GITHUB_APP_ID"), got("SUTURE_JENKINS_TOKEN")), ("4711".to_owned(), "plain".to_owned()));
    assert_eq!(got("SUTURE_STATE_TABLE"), "secret:this is no secret#at all");
    assert_eq!(vault.get("SUTURE_ADMIN_KEYS"), None);
    assert!(!format!("{vault:?}").contains("s1"), "secrets are never shown");
    assert!(webhook::config::secrets(&vault, "SUTURE_WEBHOOK_SECRET").unwrap().is_some());
}

#[tokio::test]
async fn what_is_not_to_be_had_is_said_with_what_to_do() {
    keep("bad/fields", &json!({"empty": " ", "list": ["x"]})).await;
    client().await.create_secret().name("bad/text").secret_string("not JSON").send().await.unwrap();
    let variable = "SUTURE_BOT_SECRET";
    let open = async |reference: &str, client: Client| {
        SecretEnv::resolve(variables([(variable, reference)]), fetch_with(client), later(0)).await.unwrap_err()
    };
    let missing = open("secret:bad/none#field", client().await).await;
    assert_eq!(missing, SecretError::Missing { variable, secret: "bad/none".to_owned() });
    assert!(missing.to_string().contains("Create it"), "{missing}");
    for field in ["absent", "empty"] {
        let error = open(&format!("secret:bad/fields#{field}"), client().await).await;
        assert!(error.to_string().contains(&format!("no field `{field}`")), "{error}");
    }
    for reference in ["secret:bad/fields#list", "secret:bad/text#field"] {
        let error = open(reference, client().await).await;
        assert!(error.to_string().contains("not a JSON object"), "{error}");
    }
    assert_eq!(open("secret:bad/fields", client().await).await, SecretError::Reference { variable });
    let key = python(
        Ministack::guarded().endpoint(),
        "iam = boto3.client('iam'); iam.create_user(UserName='nobody')\n\
         print(json.dumps(iam.create_access_key(UserName='nobody')['AccessKey'], default=str))",
    );
    let key: Value = serde_json::from_str(key.trim()).unwrap();
    let nobody = client_as(key["AccessKeyId"].as_str().unwrap(), key["SecretAccessKey"].as_str().unwrap()).await;
    let denied = open("secret:bad/fields#empty", nobody).await;
    assert_eq!(denied, SecretError::Denied { variable, secret: "bad/fields".to_owned() });
    assert!(denied.to_string().contains("secretsmanager:GetSecretValue"), "{denied}");
}

#[tokio::test]
async fn a_rotation_is_seen_after_five_minutes_or_at_once_on_doubt_but_not_more_than_once_a_minute() {
    let name = "rotate/time";
    let fields = |n: u32| json!({"token": format!("t{n}")});
    keep(name, &fields(1)).await;
    let set = variables([("SUTURE_GITHUB_TOKEN", "secret:rotate/time#token")]);
    let vault = SecretEnv::resolve(set, fetch_with(client().await), later(0)).await.unwrap();
    let token = || vault.get("SUTURE_GITHUB_TOKEN").unwrap();
    rotate(name, &fields(2)).await;
    vault.refresh_if_stale(later(299)).await;
    assert_eq!((token().as_str(), vault.changes()), ("t1", 0));
    vault.refresh_if_stale(later(300)).await;
    assert_eq!((token().as_str(), vault.changes()), ("t2", 1));
    rotate(name, &fields(3)).await;
    vault.refresh_now(later(359)).await;
    assert_eq!(token(), "t2", "it was read less than a minute ago");
    vault.refresh_now(later(360)).await;
    assert_eq!((token().as_str(), vault.changes()), ("t3", 2));
    vault.refresh_now(later(420)).await;
    assert_eq!(vault.changes(), 2, "it is the same");
    // What cannot be read leaves what was read.
    client().await.delete_secret().secret_id(name).force_delete_without_recovery(true).send().await.unwrap();
    vault.refresh_now(later(480)).await;
    vault.refresh_if_stale(later(1_000)).await;
    assert_eq!((token().as_str(), vault.changes()), ("t3", 2));
}

#[tokio::test]
async fn each_user_of_a_vault_hears_of_each_change_once() {
    keep("rotate/users", &json!({"token": "t1"})).await;
    let set = variables([("SUTURE_GITHUB_TOKEN", "secret:rotate/users#token")]);
    let vault = Arc::new(SecretEnv::resolve(set, fetch_with(client().await), later(0)).await.unwrap());
    let user = || SecretRefresher::new(&vault, || later(10), |vault: &SecretEnv| vault.get("SUTURE_GITHUB_TOKEN"));
    let (one, two, idle) = (user(), user(), user());
    assert_eq!(one.freshen(later(1)).await, None);
    rotate("rotate/users", &json!({"token": "t2"})).await;
    assert_eq!(one.doubt().await.as_deref(), Some("t2"));
    assert_eq!(one.doubt().await, None);
    // The second asks within the minute, and is told all the same.
    assert_eq!(two.doubt().await.as_deref(), Some("t2"));
    assert_eq!(idle.freshen(later(11)).await.as_deref(), Some("t2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_whose_credentials_were_rotated_read_them_again_and_go_on() {
    let settings = FakeSettings::default();
    let (token, jenkins_token) = (settings.tokens[0].0.clone(), settings.jenkins_token.clone());
    let world = Arc::new(Mutex::new(Fakes::new(3, settings)));
    let pr = world.lock().unwrap().open_pr(NewPullRequest::default());
    let serving = fakes::serve(Arc::clone(&world)).await.unwrap();
    keep("rotate/clients", &json!({"github": "old", "jenkins": "old"})).await;
    let open = async || {
        let set = variables([
            ("SUTURE_GITHUB_API_URL", &serving.github_url),
            ("SUTURE_GITHUB_TOKEN", "secret:rotate/clients#github"),
            ("SUTURE_JENKINS_URL", &serving.jenkins_url),
            ("SUTURE_JENKINS_USER", "suture"),
            ("SUTURE_JENKINS_TOKEN", "secret:rotate/clients#jenkins"),
        ]);
        Clients::connect(&Arc::new(
            SecretEnv::resolve(set, fetch_with(client().await), Timestamp::now()).await.unwrap(),
        ))
        .unwrap()
    };
    let pr: PrId = format!("{}#{}", pr.repo, pr.number).parse().unwrap();
    let refused = |error: &ApiError| matches!(error, ApiError::Unauthorized { .. });
    // Nothing was rotated: the same credentials are refused, and that is the answer.
    let stale = open().await;
    assert!(refused(&stale.github.pull(&pr).await.unwrap_err()));
    assert!(refused(&stale.jenkins.as_ref().unwrap().queue_item(1).await.unwrap_err()));
    let clients = open().await;
    rotate("rotate/clients", &json!({"github": token, "jenkins": jenkins_token})).await;
    assert!(clients.github.pull(&pr).await.unwrap().open);
    // Less than a minute later, but what GitHub's client has found holds for this one too.
    assert_eq!(clients.jenkins.unwrap().queue_item(1).await.unwrap(), None);
    serving.stop().await;
}
