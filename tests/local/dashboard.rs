//! The dashboard in a real browser, on the real functions and what the demo brings about: signed in, looked at, a pull request
//! opened, `/rebuild` asked for and seen queued. `tests/dashboard` has the assertions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tests::local_aws::Folder;

use crate::child_process::Up;

/// Screenshots are kept beside the build, where people look for what a test leaves behind.
fn screenshots() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_up"));
    program.parent().and_then(Path::parent).map_or_else(std::env::temp_dir, |target| target.join("screenshots"))
}

#[test]
fn people_see_the_real_thing_in_a_browser() {
    let folder = Folder::new();
    let up = Up::start(folder.path(), |command| command.args(["--demo", "--seed", "1", "--speed", "40"]));
    // What needs a person stays as it is while we look, and its checks may be run again.
    let (repo, number) = up.wait_for("somebody who is needed", Duration::from_secs(90), |up| {
        let overview = up.get("/api/overview");
        let one = overview["needs_person"]
            .as_array()?
            .iter()
            .find(|one| one["why"].as_str().is_some_and(|why| why.contains("fail")))?;
        Some((one["repo"].as_str()?.to_owned(), one["number"].as_u64()?))
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard/browser.mjs");
    let looked = Command::new("node")
        .arg(script)
        .args(["--base", &format!("http://{}", up.address), "--key", &up.key, "--pr", &format!("{repo}/{number}")])
        .arg("--out")
        .arg(screenshots())
        .stdin(Stdio::null())
        .output()
        .expect("node");
    let said = format!("{}{}", String::from_utf8_lossy(&looked.stdout), String::from_utf8_lossy(&looked.stderr));
    // Shown when a test fails, or with --nocapture: sizes and what was seen.
    eprintln!("{said}");
    assert!(looked.status.success(), "{said}");
}
