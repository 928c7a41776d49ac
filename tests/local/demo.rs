//! The first command of a newcomer, and the same directory again.

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::local_aws::Folder;

use crate::child_process::Up;

fn count(overview: &Value, state: &str) -> u64 {
    let states = overview["states"].as_array().cloned().unwrap_or_default();
    states.iter().filter(|one| one["state"] == state).filter_map(|one| one["count"].as_u64()).sum()
}

fn has_activity(overview: &Value, kind: &str) -> bool {
    let activity = overview["activity"].as_array().cloned().unwrap_or_default();
    activity.iter().any(|one| one["kind"].as_str().is_some_and(|it| it.starts_with(kind)))
}

#[test]
fn within_a_minute_pull_requests_are_opened_healed_and_merged_and_a_restart_goes_on() {
    let folder = Folder::new();
    let began = Instant::now();
    let mut up = Up::start(folder.path(), |command| command.args(["--demo", "--seed", "1"]));
    let health = up.wait_for("health", Duration::from_secs(20), |up| {
        Some(up.get("/healthz")).filter(|health| health["status"] == "ok")
    });
    assert!(health["version"].is_string());
    let overview = up.wait_for("a healed and a merged one", Duration::from_secs(60), |up| {
        let overview = up.get("/api/overview");
        let all = count(&overview, "MERGED") > 0
            && has_activity(&overview, "REMEDIATION_")
            && up.said().iter().any(|line| line.contains("  healed  "));
        all.then_some(overview)
    });
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!((&overview["mode"], &overview["role"]), (&Value::from("act"), &Value::from("admin")));
    // Every remedy there is, and the one that needs a person.
    let words = [
        "  opened ",
        "  merged ",
        "  escalated ",
        "  mail ",
        "run the checks again",
        "merge the base branch into it",
        "retrigger Policy Bot",
        "request the separation-of-duties check again",
        "retrigger Approver Bot",
        "retrigger Automerge Bot",
        "close it and ask CodeGenie",
    ];
    for word in words {
        up.wait_for(word, Duration::from_secs(30), |up| up.said().iter().any(|line| line.contains(word)).then_some(()));
    }
    assert!(up.said().iter().all(|line| !line.contains('\x1b')), "colours are for terminals");
    // Nobody gets in without the key.
    let open = std::mem::take(&mut up.key);
    assert_eq!(up.ask("GET", "/api/overview", &[], b"").map(|(status, _)| status), Some(401));
    up.key = open;

    let listed = up.get("/api/prs?limit=5");
    let known = listed["prs"][0].clone();
    let path = format!("/api/pr/{}/{}/events", known["repo"].as_str().unwrap_or_default(), known["number"]);
    let events = up.get(&path)["events"].as_array().map_or(0, Vec::len);
    assert!(events > 0, "{listed}");

    up.signal("-INT");
    assert_eq!(up.ended_within(Duration::from_secs(2)), Some(0));
    let key = up.key.clone();
    let again = Up::start(folder.path(), |command| command.args(["--demo", "--seed", "1"]));
    assert_eq!(again.key, key, "the same directory has the same key");
    assert!(again.get(&path)["events"].as_array().map_or(0, Vec::len) >= events, "its past is still there");
    // What was open in the former world is closed, and new ones have numbers nobody had.
    again.wait_for("closing", Duration::from_secs(20), |up| {
        up.said().iter().any(|line| line.contains("  closed  ")).then_some(())
    });
    let newest = again.wait_for("a new one", Duration::from_secs(20), |up| {
        let said = up.said();
        let line = said.iter().find(|line| line.contains("  opened  "))?;
        line.split_once('#')?.1.split(' ').next()?.parse::<u64>().ok()
    });
    assert!(newest > 20, "#{newest} would be another one's number");
    again.kill();
}

#[test]
fn sigterm_ends_it_as_well() {
    let folder = Folder::new();
    let mut up = Up::start(folder.path(), |command| command.args(["--demo", "--speed", "10"]));
    up.signal("-TERM");
    assert_eq!(up.ended_within(Duration::from_secs(2)), Some(0));
    assert_eq!(up.said().last().map(String::as_str), Some("Stopped. Everything is kept."));
}
