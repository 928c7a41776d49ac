//! What cannot work ends with one sentence that says what to do, and with exit code 2.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use admin::keys::ApiKeys;
use tests::local_aws::Folder;

use crate::child_process::{Up, program, run};

fn refused(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    said.trim_end().to_owned()
}

fn up_in(data: &Path) -> Command {
    let mut command = program();
    command.args(["--port", "0", "--data"]).arg(data);
    command
}

#[test]
fn a_port_that_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let folder = Folder::new();
    let said = refused(program().args(["--port", &port.to_string(), "--data"]).arg(folder.path()));
    assert_eq!(
        said,
        format!("Port {port} is in use by another process: give another one with --port N (0 takes any that is free).")
    );
}

#[test]
fn unwritable_locked_or_foreign_data_directory_is_refused() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let said = refused(&mut up_in(&file.join("below")));
    assert!(said.starts_with("The data directory ") && said.ends_with("Give another one with --data DIR."), "{said}");
    assert_eq!(said.lines().count(), 1);

    let data = folder.path().join("data");
    let up = Up::start(&data, |command| command);
    let said = refused(&mut up_in(&data));
    assert!(
        said.ends_with("is in use by another process: stop that one, or give another directory with --data DIR."),
        "{said}"
    );
    up.kill();

    let said =
        refused(up_in(&data).args(["--no-demo"]).envs([("SUTURE_GITHUB_TOKEN", "t"), ("SUTURE_WEBHOOK_SECRET", "s")]));
    assert!(said.contains("belongs to a demo and cannot be used for a live"), "{said}");
}

#[test]
fn a_wrong_configuration() {
    let folder = Folder::new();
    let config = folder.path().join("suture.toml");
    std::fs::write(&config, "mode = \"act\"\nbudget = 3\n").expect("a file");
    let said = refused(up_in(&folder.path().join("data")).arg("--config").arg(&config));
    assert!(said.contains("suture.toml cannot be used") && said.contains("budget"), "{said}");
    let said = refused(up_in(&folder.path().join("data")).env("SUTURE_CONFIG", "no/such/file"));
    assert!(said.starts_with("SUTURE_CONFIG: no/such/file cannot be read"), "{said}");
    assert!(!folder.path().join("data").exists(), "nothing was made");
    let said = refused(program().args(["check-config"]).arg(&config));
    assert!(said.contains("budget"), "{said}");
}

#[test]
fn what_is_missing_for_a_real_github() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    let said = refused(up_in(&data).arg("--no-demo"));
    assert!(said.starts_with("There are no GitHub credentials: set SUTURE_GITHUB_APP_ID"), "{said}");
    let said = refused(up_in(&data).env("SUTURE_GITHUB_TOKEN", "t"));
    assert!(said.starts_with("SUTURE_WEBHOOK_SECRET is not set"), "{said}");
    let said = refused(up_in(&data).env("SUTURE_GITHUB_APP_ID", "7"));
    assert_eq!(said, "SUTURE_GITHUB_PRIVATE_KEY is not set: set this environment variable (docs/settings.md).");
    let said = refused(up_in(&data).args(["--speed", "2"]).env("SUTURE_GITHUB_TOKEN", "t"));
    assert!(said.starts_with("Only the demo's time can be sped up"), "{said}");
    let said = refused(up_in(&data).args(["--speed", "0"]));
    assert!(said.starts_with("--speed 0 is not possible"), "{said}");
    assert!(!data.exists(), "nothing was made");
}

#[test]
fn a_new_key_opens_what_its_entry_says() {
    let output = run(program().args(["new-key", "ann", "operator", "--repos", "acme/shop,acme/web"]));
    let said = String::from_utf8(output.stdout).expect("text");
    let field = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).expect(name).trim().to_owned();
    let keys = ApiKeys::parse(&field("entry")).expect("an entry");
    let caller = keys.caller(&field("key")).expect("it opens");
    assert_eq!((caller.name.as_str(), caller.role.name()), ("ann", "operator"));
    assert!(caller.can_see(&"acme/shop".parse().expect("a repository")));
    assert!(!caller.can_see(&"acme/payments".parse().expect("a repository")));
    for (wrong, word) in [
        (vec!["ann", "owner"], "owner"),
        (vec!["a b", "admin"], "`a b`"),
        (vec!["a", "admin", "--repos", "x"], "--repos"),
    ] {
        let said = refused(program().arg("new-key").args(&wrong));
        assert!(said.contains(word), "{said}");
    }
}
