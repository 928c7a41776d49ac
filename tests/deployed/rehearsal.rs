//! Rehearses the runbook on ministack: the commands of docs/operations.md, as they are printed there, with `scripts/deploy` and the AWS
//! command line. The functions are empty programs; what is tested is the stack, the tables and the commands.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use admin::api_keys::ApiKeys;
use admin::{Admin, AdminSettings};
use domain::id::PrId;
use domain::signals::CheckVerdict;
use jiff::{SignedDuration, Timestamp};
use platform::clock::SystemClock;
use platform::engine::Engine;
use platform::publish::dead_letters::DeadLetterQueue;
use platform::store::dynamo::DynamoStore;
use platform::store::dynamo::tables::TableNames;
use platform::store::pause;
use platform::telemetry::MetricLog;
use serde_json::Value;
use testbed::RecordingPublisher;
use tests::lambda::{FUNCTIONS, root, tools};
use tests::local_aws::{Folder, Ministack, client};
use tests::{acting, check, opened, pr};

use crate::end_to_end::is_skipped;
use crate::stack::{ADMIN_KEY, admin_key_entry, python};

const BUCKET: &str = "rehearsal";

/// The shell blocks of a section of the playbook, without their indentation.
fn blocks(heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let section = match heading {
        "" => text.split("\n## ").next().unwrap(),
        _ => {
            let (_, rest) = text.split_once(&format!("\n### {heading}\n")).unwrap();
            rest.split("\n##").next().unwrap()
        }
    };
    let (mut blocks, mut block): (Vec<String>, Option<String>) = (Vec::new(), None);
    for line in section.lines() {
        match (&mut block, line.trim()) {
            (None, "```sh") => block = Some(String::new()),
            (None, _) => {}
            (Some(_), "```") => blocks.extend(block.take()),
            (Some(block), _) => block.push_str(&format!("{}\n", line.strip_prefix("   ").unwrap_or(line))),
        }
    }
    blocks
}

/// What `scripts/deploy` needs of the repository, with empty programs as functions.
fn prepare(folder: &Path) {
    for path in ["scripts", "scripts/python", "infra/config", ".aws-sam/build/infra/config"] {
        std::fs::create_dir_all(folder.join(path)).unwrap();
    }
    let pins = std::fs::read_dir(root().join("scripts/python")).unwrap();
    let pins = pins.map(|pin| format!("scripts/python/{}", pin.unwrap().file_name().to_string_lossy()));
    let fixed = ["scripts/deploy", "scripts/python-tools", "samconfig.toml", "infra/config/suture.toml"];
    for path in fixed.into_iter().map(str::to_owned).chain(pins) {
        std::fs::copy(root().join(&path), folder.join(&path)).unwrap();
    }
    let build = folder.join(".aws-sam/build");
    std::fs::copy(root().join("template.yaml"), build.join("template.yaml")).unwrap();
    std::fs::copy(root().join("infra/config/suture.toml"), build.join("infra/config/suture.toml")).unwrap();
    for function in FUNCTIONS {
        let program = build.join("functions").join(function).join("bootstrap");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "#!/bin/sh\nsleep 60\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A shell that keeps its variables and functions from one block to the next.
struct Shell {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Shell {
    fn start(folder: &Path, endpoint: &str) -> Self {
        let path = format!("{}:{}", tools("awscli").display(), std::env::var("PATH").unwrap());
        let mut process = Command::new("bash")
            .current_dir(folder)
            .env("PATH", path)
            .envs([("AWS_ENDPOINT_URL", endpoint), ("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")])
            .envs([("AWS_DEFAULT_REGION", "us-east-1"), ("BUCKET", BUCKET), ("AWS_PAGER", "")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut shell = Self { process, output };
        shell.run("exec 2>&1; set -eo pipefail");
        shell
    }

    /// Runs commands and returns what they print.
    fn run(&mut self, commands: &str) -> String {
        const END: &str = "── end of the block";
        let stdin = self.process.stdin.as_mut().unwrap();
        // The block itself must not read the commands that follow.
        write!(stdin, "{{\n{commands}\n}} </dev/null\necho '{END}'\n").unwrap();
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                panic!("the shell ended in\n{commands}\n{printed}");
            }
            if line.trim_end() == END {
                return printed;
            }
            printed.push_str(&line);
        }
    }

    fn line(&mut self, commands: &str) -> String {
        self.run(commands).trim().to_owned()
    }
}

/// Deploys the stack with empty functions.
fn deployed(folder: &Path, stack: &str) -> Shell {
    let endpoint = Ministack::shared().endpoint();
    prepare(folder);
    let mut shell = Shell::start(folder, endpoint);
    shell.run(&format!("aws s3 mb s3://{BUCKET} || true"));
    shell.run(&format!(
        "STACK={stack} scripts/deploy package --no-confirm-changeset --parameter-overrides EndpointUrl={endpoint} Architecture=x86_64"
    ));
    shell
}

/// Where the function's code and its configuration come from.
fn artifacts(shell: &mut Shell, stack: &str) -> (String, String) {
    let template = format!(
        "aws cloudformation get-template --stack-name {stack} --template-stage Original --query TemplateBody --output text"
    );
    let template = shell.run(&template);
    let uri = |name: &str| {
        let found: BTreeSet<&str> = template.lines().filter_map(|line| line.trim().strip_prefix(name)).collect();
        found.into_iter().collect::<Vec<_>>().join(" ")
    };
    (uri("CodeUri: "), uri("ContentUri: "))
}

#[test]
fn configuration_is_deployed_and_rolled_back_without_a_build() {
    if is_skipped() {
        return;
    }
    let (folder, stack) = (Folder::new(), "rollback");
    let mut shell = deployed(folder.path(), stack);
    shell.run(&format!("export STACK={stack}"));
    let (code, configuration) = artifacts(&mut shell, stack);
    let first = shell.line("scripts/deploy versions");
    assert_eq!(first.lines().count(), 1, "{first}");

    // No cargo, no SAM build: a broken source tree does not matter.
    std::fs::remove_dir_all(folder.path().join(".aws-sam")).unwrap();
    std::fs::write(folder.path().join("infra/config/suture.toml"), "mode = \"act\"\n").unwrap();
    // The name of a version has seconds.
    shell.run("sleep 1; scripts/deploy config");
    let (same_code, new_configuration) = artifacts(&mut shell, stack);
    assert_eq!(same_code, code, "the functions are those that were built before");
    assert_ne!(new_configuration, configuration);
    let layer = new_configuration.trim_start_matches("s3://");
    let zipped = format!("aws s3 cp s3://{layer} layer.zip >/dev/null && python3 -m zipfile -l layer.zip");
    assert!(shell.run(&zipped).contains("suture.toml"), "{layer}");
    let layers = shell.run("aws lambda list-layers --query 'Layers[].LayerName' --output text");
    assert!(layers.contains("rollback-configuration"), "{layers}");

    shell.run(&blocks("Bad deploy")[0]);
    assert_eq!(artifacts(&mut shell, stack), (code, configuration), "the version before is deployed again");
    let versions = shell.line("scripts/deploy versions");
    assert_eq!(versions.lines().count(), 3, "{versions}");
    assert_eq!(versions.lines().last(), Some(first.as_str()));
    assert!(!folder.path().join("Cargo.toml").exists(), "nothing could have been compiled");
}

/// The tables that the stack's functions use, by its outputs.
fn tables_in_use(shell: &mut Shell) -> TableNames {
    TableNames { state: shell.line("output StateTableName"), events: shell.line("output EventsTableName") }
}

/// Serves the admin API on these tables and returns its URL.
async fn serve_admin(names: &TableNames) -> String {
    let settings = AdminSettings {
        keys: ApiKeys::parse(&admin_key_entry()).unwrap(),
        owner: None,
        github: None,
        jenkins: None,
        dlq: DeadLetterQueue::None,
        clock: Arc::new(SystemClock),
        log: MetricLog::disabled(),
    };
    let engine = Engine::new(store(names), RecordingPublisher::default(), acting());
    let router = admin::router(Arc::new(Admin::new(engine, settings)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(tokio::spawn(async move { axum::serve(listener, router).await }));
    url
}

fn store(names: &TableNames) -> DynamoStore {
    DynamoStore::new(client(Ministack::shared().endpoint()), names.clone())
}

/// Applies a few facts and returns when it did.
async fn live(names: &TableNames, pr: &PrId) {
    let engine = Engine::new(store(names), RecordingPublisher::default(), acting());
    let now = Timestamp::now();
    engine.apply(&opened(pr, format!("{pr}-opened"), now), now).await.unwrap();
    for (n, verdict) in [CheckVerdict::Failed, CheckVerdict::Passed].into_iter().enumerate() {
        let at = now + SignedDuration::from_secs(i64::try_from(n).unwrap() + 1);
        engine.apply(&check(pr, format!("{pr}-{n}"), "build", verdict, at), at).await.unwrap();
    }
}

/// The keys of all events in a table.
async fn events(table: &str) -> BTreeSet<(String, String)> {
    let scanned = client(Ministack::shared().endpoint()).scan().table_name(table).send().await.unwrap();
    let text = |value: &aws_sdk_dynamodb::types::AttributeValue| value.as_s().unwrap().clone();
    scanned.items().iter().map(|item| (text(&item["pr"]), text(&item["sk"]))).collect()
}

async fn delete_all(table: &str, keys: &[&str]) {
    let client = client(Ministack::shared().endpoint());
    for mut item in client.scan().table_name(table).send().await.unwrap().items.unwrap_or_default() {
        item.retain(|name, _| keys.contains(&name.as_str()));
        client.delete_item().table_name(table).set_key(Some(item)).send().await.unwrap();
    }
}

/// Whether schedule, rule and event source mapping are enabled.
fn triggers(shell: &mut Shell) -> [bool; 3] {
    let states = shell.run(
        "aws scheduler get-schedule --name \"$(resource SweepSchedule)\" --query State --output text\n\
         aws events list-rules --event-bus-name suture --query 'Rules[0].State' --output text\n\
         aws lambda list-event-source-mappings --function-name \"$(resource CarBridgeFunction)\" --query 'EventSourceMappings[0].State' --output text",
    );
    let states: Vec<bool> = states.lines().map(|state| state.eq_ignore_ascii_case("enabled")).collect();
    states.try_into().unwrap()
}

/// The tables in the environment of each function, and whether its role names them.
fn tables_of_functions() -> BTreeSet<(String, String, bool)> {
    let read = "functions, iam = boto3.client('lambda'), boto3.client('iam')\n\
        found = []\n\
        for function in functions.list_functions()['Functions']:\n\
        \x20   if not function['FunctionName'].startswith('suture-'): continue\n\
        \x20   variables = function['Environment']['Variables']\n\
        \x20   names = [variables['SUTURE_STATE_TABLE'], variables['SUTURE_EVENTS_TABLE']]\n\
        \x20   role = function['Role'].rsplit('/', 1)[1]\n\
        \x20   policy = json.dumps(iam.get_role_policy(RoleName=role, PolicyName='permissions')['PolicyDocument'])\n\
        \x20   found.append([*names, all(f'table/{name}\"' in policy for name in names)])\n\
        print(json.dumps(found))";
    let found: Vec<Value> = serde_json::from_str(&python(Ministack::shared().endpoint(), read)).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    found.iter().map(|one| (text(&one[0]), text(&one[1]), one[2].as_bool().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_restore_loses_nothing_that_was_backed_up_and_starts_paused() {
    if is_skipped() {
        return;
    }
    let folder = Folder::new();
    let mut shell = deployed(folder.path(), "suture");
    shell.run(&blocks("")[0]);
    let steps = blocks("Table restore");
    let [backup, stop, to_moment, from_backup, settings, switch, start, unpause] = steps.as_slice() else {
        panic!("the runbook has other steps: {steps:#?}")
    };
    let damaged = tables_in_use(&mut shell);
    let url = serve_admin(&damaged).await;
    shell.run(&format!("SUTURE_KEY='{ADMIN_KEY}' URL={url}"));

    live(&damaged, &pr(1)).await;
    let backed_up = events(&damaged.events).await;
    assert!(backed_up.len() >= 3, "{backed_up:?}");
    shell.run(backup);
    live(&damaged, &pr(2)).await;
    delete_all(&damaged.state, &["pk"]).await;
    delete_all(&damaged.events, &["pr", "sk"]).await;

    shell.run(stop);
    assert_eq!(triggers(&mut shell), [false; 3]);
    assert!(pause::paused_by(&store(&damaged), Timestamp::now()).await.unwrap().is_some());
    // ministack restores the present instead of the moment, so this checks the command only.
    shell.run(to_moment);
    shell.run("for TABLE in \"$(resource StateTable)$SUFFIX\" \"$(resource EventsTable)$SUFFIX\"; do aws dynamodb delete-table --table-name \"$TABLE\"; done");
    shell.run(from_backup);
    shell.run(settings);
    shell.run(switch);
    let restored = tables_in_use(&mut shell);
    assert_eq!(
        (restored.state.as_str(), restored.events.as_str()),
        (&*format!("{}-restored-1", damaged.state), &*format!("{}-restored-1", damaged.events))
    );
    assert_eq!(tables_of_functions(), BTreeSet::from([(restored.state.clone(), restored.events.clone(), true)]));
    assert_eq!(triggers(&mut shell), [false; 3], "nothing acts before it is paused again");
    assert_eq!(events(&restored.events).await, backed_up, "no event is lost that was in the backup");
    let now = Timestamp::now();
    assert_eq!(pause::paused_by(&store(&restored), now).await.unwrap(), None, "the pause came after the backup");

    let url = serve_admin(&restored).await;
    shell.run(&format!("URL={url}"));
    // The order matters: what acts must find the pause.
    assert!(start.find("/api/pause").unwrap() < start.find("Running=true").unwrap(), "{start}");
    let started = shell.run(start);
    assert!(started.contains("run_id"), "{started}");
    assert_eq!(triggers(&mut shell), [true; 3]);
    assert!(pause::paused_by(&store(&restored), now).await.unwrap().is_some_and(|by| by.contains("table restore")));
    let engine = Engine::new(store(&restored), RecordingPublisher::default(), acting());
    assert!(engine.load(&pr(1), now).await.unwrap().is_some(), "the record is back");
    live(&restored, &pr(2)).await;
    shell.run(unpause);
    assert_eq!(pause::paused_by(&store(&restored), Timestamp::now()).await.unwrap(), None);
    let ttl = "aws dynamodb describe-time-to-live --table-name \"$(output StateTableName)\" --query TimeToLiveDescription.TimeToLiveStatus --output text";
    assert_eq!(shell.line(ttl), "ENABLED");
}
