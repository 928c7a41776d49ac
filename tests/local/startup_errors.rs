//! A startup error prints one sentence with the fix and exits with code 2.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use admin::keys::ApiKeys;
use tests::local_aws::Folder;

use crate::child_process::{Up, program, run};

fn startup_error(command: &mut Command) -> String {
    let output = run(command);
    let message = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    message.trim_end().to_owned()
}

fn up_in(data: &Path) -> Command {
    let mut command = program();
    command.args(["--port", "0", "--data"]).arg(data);
    command
}

#[test]
fn port_in_use_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let folder = Folder::new();
    let message = startup_error(program().args(["--port", &port.to_string(), "--data"]).arg(folder.path()));
    assert_eq!(
        message,
        format!("Port {port} is in use by another process: choose another one with --port N (0 takes any free port).")
    );
}

#[test]
fn unwritable_locked_or_foreign_data_directory_is_refused() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let message = startup_error(&mut up_in(&file.join("below")));
    assert!(
        message.starts_with("The data directory ") && message.ends_with("Choose another one with --data DIR."),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1);

    let data = folder.path().join("data");
    let up = Up::start(&data, |command| command);
    let message = startup_error(&mut up_in(&data));
    assert!(
        message
            .ends_with("is in use by another process: stop that process, or choose another directory with --data DIR."),
        "{message}"
    );
    up.kill();

    let message = startup_error(
        up_in(&data).args(["--no-demo"]).envs([("SUTURE_GITHUB_TOKEN", "t"), ("SUTURE_WEBHOOK_SECRET", "s")]),
    );
    assert!(message.contains("was created for demo mode and cannot be used for live mode"), "{message}");
}

#[test]
fn invalid_configuration_is_refused() {
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    std::fs::write(&config, "mode = \"act\"\nbudget = 3\n").expect("a file");
    let message = startup_error(up_in(&folder.path().join("data")).arg("--config").arg(&config));
    assert!(message.contains("suture.toml is invalid") && message.contains("budget"), "{message}");
    let message = startup_error(up_in(&folder.path().join("data")).env("SUTURE_CONFIG", "no/such/file"));
    assert!(message.starts_with("SUTURE_CONFIG: no/such/file cannot be read"), "{message}");
    assert!(!folder.path().join("data").exists(), "the data directory was not created");
    let message = startup_error(program().args(["check-config"]).arg(&config));
    assert!(message.contains("budget"), "{message}");
}

#[test]
fn missing_credentials_or_secret_and_invalid_speed_are_refused() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    let message = startup_error(up_in(&data).arg("--no-demo"));
    assert!(message.starts_with("There are no GitHub credentials: set SUTURE_GITHUB_APP_ID"), "{message}");
    let message = startup_error(up_in(&data).env("SUTURE_GITHUB_TOKEN", "t"));
    assert!(message.starts_with("SUTURE_WEBHOOK_SECRET is not set"), "{message}");
    let message = startup_error(up_in(&data).env("SUTURE_GITHUB_APP_ID", "7"));
    assert_eq!(message, "SUTURE_GITHUB_PRIVATE_KEY is not set: set this environment variable (docs/settings.md).");
    let message = startup_error(up_in(&data).args(["--speed", "2"]).env("SUTURE_GITHUB_TOKEN", "t"));
    assert!(message.starts_with("--speed works only in the demo"), "{message}");
    let message = startup_error(up_in(&data).args(["--speed", "0"]));
    assert!(message.starts_with("--speed 0 is out of range"), "{message}");
    assert!(!data.exists(), "the data directory was not created");
}

#[test]
fn new_key_grants_the_role_and_repositories_of_its_entry() {
    let output = run(program().args(["new-key", "ann", "operator", "--repos", "acme/shop,acme/web"]));
    let text = String::from_utf8(output.stdout).expect("text");
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).expect(name).trim().to_owned();
    let keys = ApiKeys::parse(&field("entry")).expect("an entry");
    let caller = keys.caller(&field("key")).expect("the key is accepted");
    assert_eq!((caller.name.as_str(), caller.role.name()), ("ann", "operator"));
    assert!(caller.can_see(&"acme/shop".parse().expect("a repository")));
    assert!(!caller.can_see(&"acme/payments".parse().expect("a repository")));
    for (arguments, mentioned) in [
        (vec!["ann", "owner"], "owner"),
        (vec!["a b", "admin"], "`a b`"),
        (vec!["a", "admin", "--repos", "x"], "--repos"),
    ] {
        let message = startup_error(program().arg("new-key").args(&arguments));
        assert!(message.contains(mentioned), "{message}");
    }
}
