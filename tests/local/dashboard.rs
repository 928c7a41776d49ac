//! The dashboard in a real browser, on the real functions and the demo: sign in, open a pull request, request
//! `/rebuild` and see it queued. `tests/dashboard` has the assertions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tests::local_aws::Folder;

use crate::child_process::Up;

/// Screenshots go into the build directory, with the other test output.
fn screenshots() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_up"));
    program.parent().and_then(Path::parent).map_or_else(std::env::temp_dir, |target| target.join("screenshots"))
}

#[test]
fn dashboard_works_in_a_browser() {
    let folder = Folder::new();
    let up = Up::start(folder.path(), |command| command.args(["--demo", "--seed", "1", "--speed", "40"]));
    // A pull request that needs a person does not change meanwhile, and its checks can be rerun.
    let (repo, number) = up.wait_for("pull request that needs a person", Duration::from_secs(90), |up| {
        let overview = up.get("/api/overview");
        let one = overview["needs_person"]
            .as_array()?
            .iter()
            .find(|one| one["why"].as_str().is_some_and(|why| why.contains("fail")))?;
        Some((one["repo"].as_str()?.to_owned(), one["number"].as_u64()?))
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard/browser.mjs");
    let browser = Command::new("node")
        .arg(script)
        .args(["--base", &format!("http://{}", up.address), "--key", &up.key, "--pr", &format!("{repo}/{number}")])
        .arg("--out")
        .arg(screenshots())
        .stdin(Stdio::null())
        .output()
        .expect("node");
    let output = format!("{}{}", String::from_utf8_lossy(&browser.stdout), String::from_utf8_lossy(&browser.stderr));
    // Visible on failure or with --nocapture: sizes and the steps of the browser.
    eprintln!("{output}");
    assert!(browser.status.success(), "{output}");
}
