//! Secrets in Secrets Manager: a function resolves them when it starts, and reads them again after five minutes or after a rejected
//! credential. Errors name the variable and the fix.

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
    let credentials = Credentials::new(key, secret, None, None, "a test");
    let config = config.credentials_provider(credentials).endpoint_url(Ministack::guarded().endpoint()).load().await;
    Client::new(&config)
}

async fn client() -> Client {
    client_as("test", "test").await
}

async fn create(name: &str, fields: &Value) {
    client().await.create_secret().name(name).secret_string(fields.to_string()).send().await.unwrap();
}

async fn rotate(name: &str, fields: &Value) {
    client().await.put_secret_value().secret_id(name).secret_string(fields.to_string()).send().await.unwrap();
}

fn after_start(secs: i64) -> Timestamp {
    "2036-03-03T09:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(secs)
}

#[tokio::test]
async fn references_in_secret_variables_are_resolved() {
    create("resolve/one", &json!({"hook": "s1", "id": 4711})).await;
    create("resolve/two", &json!({"bot": "s2"})).await;
    let set = variables([
        ("SUTURE_WEBHOOK_SECRET", "secret:resolve/one#hook"),
        ("SUTURE_GITHUB_APP_ID", "secret:resolve/one#id"),
        ("SUTURE_POLICY_BOT_SECRET", "secret:resolve/two#bot"),
        ("SUTURE_JENKINS_TOKEN", "plain"),
        ("SUTURE_STATE_TABLE", "secret:this is no secret#at all"),
    ]);
    let secrets = SecretEnv::resolve(set, fetch_with(client().await), after_start(0)).await.unwrap();
    let got = |name: &str| secrets.get(name).unwrap_or_default();
    assert_eq!((got("SUTURE_WEBHOOK_SECRET"), got("SUTURE_POLICY_BOT_SECRET")), ("s1".to_owned(), "s2".to_owned()));
    assert_eq!((got("SUTURE_GITHUB_APP_ID"), got("SUTURE_JENKINS_TOKEN")), ("4711".to_owned(), "plain".to_owned()));
    assert_eq!(got("SUTURE_STATE_TABLE"), "secret:this is no secret#at all");
    assert_eq!(secrets.get("SUTURE_ADMIN_KEYS"), None);
    assert!(!format!("{secrets:?}").contains("s1"), "Debug output must not contain secrets");
    assert!(webhook::config::secrets(&secrets, "SUTURE_WEBHOOK_SECRET").unwrap().is_some());
}

#[tokio::test]
async fn resolve_error_names_variable_and_fix() {
    create("bad/fields", &json!({"empty": " ", "list": ["x"]})).await;
    client().await.create_secret().name("bad/text").secret_string("not JSON").send().await.unwrap();
    let variable = "SUTURE_POLICY_BOT_SECRET";
    let resolve_error = async |reference: &str, client: Client| {
        SecretEnv::resolve(variables([(variable, reference)]), fetch_with(client), after_start(0)).await.unwrap_err()
    };
    let missing = resolve_error("secret:bad/none#field", client().await).await;
    assert_eq!(missing, SecretError::Missing { variable, secret: "bad/none".to_owned() });
    assert!(missing.to_string().contains("Create it"), "{missing}");
    for field in ["absent", "empty"] {
        let error = resolve_error(&format!("secret:bad/fields#{field}"), client().await).await;
        assert!(error.to_string().contains(&format!("no field `{field}`")), "{error}");
    }
    for reference in ["secret:bad/fields#list", "secret:bad/text#field"] {
        let error = resolve_error(reference, client().await).await;
        assert!(error.to_string().contains("not a JSON object"), "{error}");
    }
    assert_eq!(resolve_error("secret:bad/fields", client().await).await, SecretError::Reference { variable });
    let key = python(
        Ministack::guarded().endpoint(),
        "iam = boto3.client('iam'); iam.create_user(UserName='no-permissions')\n\
         print(json.dumps(iam.create_access_key(UserName='no-permissions')['AccessKey'], default=str))",
    );
    let key: Value = serde_json::from_str(key.trim()).unwrap();
    let unprivileged = client_as(key["AccessKeyId"].as_str().unwrap(), key["SecretAccessKey"].as_str().unwrap()).await;
    let denied = resolve_error("secret:bad/fields#empty", unprivileged).await;
    assert_eq!(denied, SecretError::Denied { variable, secret: "bad/fields".to_owned() });
    assert!(denied.to_string().contains("secretsmanager:GetSecretValue"), "{denied}");
}

#[tokio::test]
async fn rotated_secret_is_read_after_five_minutes_or_on_demand_once_a_minute() {
    let name = "rotate/time";
    let fields = |n: u32| json!({"token": format!("t{n}")});
    create(name, &fields(1)).await;
    let set = variables([("SUTURE_GITHUB_TOKEN", "secret:rotate/time#token")]);
    let secrets = SecretEnv::resolve(set, fetch_with(client().await), after_start(0)).await.unwrap();
    let token = || secrets.get("SUTURE_GITHUB_TOKEN").unwrap();
    rotate(name, &fields(2)).await;
    secrets.refresh_if_stale(after_start(299)).await;
    assert_eq!((token().as_str(), secrets.changes()), ("t1", 0));
    secrets.refresh_if_stale(after_start(300)).await;
    assert_eq!((token().as_str(), secrets.changes()), ("t2", 1));
    rotate(name, &fields(3)).await;
    secrets.refresh_now(after_start(359)).await;
    assert_eq!(token(), "t2", "the secret was read less than a minute ago");
    secrets.refresh_now(after_start(360)).await;
    assert_eq!((token().as_str(), secrets.changes()), ("t3", 2));
    secrets.refresh_now(after_start(420)).await;
    assert_eq!(secrets.changes(), 2, "the value did not change");
    // If the secret cannot be read, the last value is kept.
    client().await.delete_secret().secret_id(name).force_delete_without_recovery(true).send().await.unwrap();
    secrets.refresh_now(after_start(480)).await;
    secrets.refresh_if_stale(after_start(1_000)).await;
    assert_eq!((token().as_str(), secrets.changes()), ("t3", 2));
}

#[tokio::test]
async fn each_refresher_receives_each_change_once() {
    create("rotate/users", &json!({"token": "t1"})).await;
    let set = variables([("SUTURE_GITHUB_TOKEN", "secret:rotate/users#token")]);
    let secrets = Arc::new(SecretEnv::resolve(set, fetch_with(client().await), after_start(0)).await.unwrap());
    let refresher =
        || SecretRefresher::new(&secrets, || after_start(10), |secrets: &SecretEnv| secrets.get("SUTURE_GITHUB_TOKEN"));
    let (one, two, idle) = (refresher(), refresher(), refresher());
    assert_eq!(one.refresh_if_stale(after_start(1)).await, None);
    rotate("rotate/users", &json!({"token": "t2"})).await;
    assert_eq!(one.refresh_now().await.as_deref(), Some("t2"));
    assert_eq!(one.refresh_now().await, None);
    // The second refresher asks within the same minute and still receives the new value.
    assert_eq!(two.refresh_now().await.as_deref(), Some("t2"));
    assert_eq!(idle.refresh_if_stale(after_start(11)).await.as_deref(), Some("t2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_read_rotated_credentials_and_retry() {
    let settings = FakeSettings::default();
    let (token, jenkins_token) = (settings.tokens[0].0.clone(), settings.jenkins_token.clone());
    let fakes = Arc::new(Mutex::new(Fakes::new(3, settings)));
    let pr = fakes.lock().unwrap().open_pr(NewPullRequest::default());
    let servers = fakes::serve(Arc::clone(&fakes)).await.unwrap();
    create("rotate/clients", &json!({"github": "old", "jenkins": "old"})).await;
    let connect = async || {
        let set = variables([
            ("SUTURE_GITHUB_API_URL", &servers.github_url),
            ("SUTURE_GITHUB_TOKEN", "secret:rotate/clients#github"),
            ("SUTURE_JENKINS_URL", &servers.jenkins_url),
            ("SUTURE_JENKINS_USER", "suture"),
            ("SUTURE_JENKINS_TOKEN", "secret:rotate/clients#jenkins"),
        ]);
        Clients::connect(&Arc::new(
            SecretEnv::resolve(set, fetch_with(client().await), Timestamp::now()).await.unwrap(),
        ))
        .unwrap()
    };
    let pr: PrId = format!("{}#{}", pr.repo, pr.number).parse().unwrap();
    let is_unauthorized = |error: &ApiError| matches!(error, ApiError::Unauthorized { .. });
    // Without a rotation the second read yields the same credentials, and the client returns the error.
    let stale = connect().await;
    assert!(is_unauthorized(&stale.github.pull(&pr).await.unwrap_err()));
    assert!(is_unauthorized(&stale.jenkins.as_ref().unwrap().queue_item(1).await.unwrap_err()));
    let clients = connect().await;
    rotate("rotate/clients", &json!({"github": token, "jenkins": jenkins_token})).await;
    assert!(clients.github.pull(&pr).await.unwrap().open);
    // The Jenkins client uses the secret that the GitHub client has just read, although a minute has not passed.
    assert_eq!(clients.jenkins.unwrap().queue_item(1).await.unwrap(), None);
    servers.stop().await;
}
