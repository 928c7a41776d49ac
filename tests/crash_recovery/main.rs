//! Kills a process in the middle of its work: acknowledged facts are stored, and undelivered effects are sent.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use domain::id::RunId;
use platform::engine::Engine;
use platform::store::dynamo::tables::TableNames;
use platform::store::queries;
use platform::store::schema::DueSubject;
use testbed::RecordingPublisher;
use tests::local_aws::{Dynoxide, Folder};
use tests::{acting, minute, pr};

/// Output of the process before the kill.
#[derive(Default)]
struct ProcessOutput {
    opened: BTreeSet<u64>,
    claimed: BTreeSet<u64>,
    sent: BTreeSet<String>,
}

/// Runs the process until it has claimed this many, then kills it with SIGKILL.
fn killed_after(claims: usize, file: &std::path::Path) -> ProcessOutput {
    let mut process = Command::new(env!("CARGO_BIN_EXE_burst"))
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = ProcessOutput::default();
    let give_up = Instant::now() + Duration::from_secs(120);
    for line in BufReader::new(process.stdout.take().unwrap()).lines() {
        // The kill may truncate the last line.
        let Ok(line) = line else { break };
        match line.split_once(' ') {
            Some(("opened", number)) => drop(output.opened.insert(number.parse().unwrap())),
            Some(("claimed", number)) => drop(output.claimed.insert(number.parse().unwrap())),
            Some(("sent", id)) => drop(output.sent.insert(id.to_owned())),
            Some(_) | None => {}
        }
        if output.claimed.len() == claims {
            process.kill().unwrap();
        }
        assert!(Instant::now() < give_up, "the process is too slow: {} claims", output.claimed.len());
    }
    process.wait().unwrap();
    output
}

#[tokio::test]
async fn process_killed_in_a_burst_loses_no_acknowledged_fact() {
    let folder = Folder::new();
    let file = folder.path().join("tables.db");
    let output = killed_after(60, &file);
    let dynamo = Dynoxide::on_file(&file).await;
    let names = TableNames { state: "suture-state".to_owned(), events: "suture-events".to_owned() };
    let engine = Engine::new(dynamo.store_on(names).await, RecordingPublisher::default(), acting());
    for number in &output.opened {
        let record = engine.load(&pr(*number), minute(6)).await.unwrap().unwrap();
        let log = queries::events(engine.store(), &pr(*number), false, None, 10, minute(6)).await.unwrap();
        assert_eq!(log.entries.len() as u64, record.version, "each change has its event: {number}");
        let run = engine.run(&RunId::new(format!("run-{number}")), minute(6)).await.unwrap();
        let claimed = output.claimed.contains(number);
        assert!(!claimed || record.retry_counts.rebuild == 1, "{number} was claimed");
        assert_eq!(run.is_some(), record.active_run.is_some(), "run and record are one transaction: {number}");
    }
    // Undelivered effects are in the outbox, and the next sweep sends them.
    let due = queries::due(engine.store(), 1000, minute(7), minute(7)).await.unwrap();
    let mut left = 0;
    for entry in due.entries {
        if let DueSubject::Effect(id) = entry.subject {
            assert!(engine.redeliver(&id, minute(7)).await.unwrap());
            left += 1;
        }
    }
    let delivered: BTreeSet<String> = engine.publisher().sent().into_iter().map(|message| message.id).collect();
    assert_eq!(delivered.len(), left);
    for number in &output.claimed {
        let id = format!("acme/shop#{number}#sweep-run-{number}#0");
        assert!(output.sent.contains(&id) || delivered.contains(&id), "{id} was neither sent nor kept");
    }
    let twice: Vec<_> = output.sent.intersection(&delivered).collect();
    assert!(twice.len() <= 4, "only a send in progress may be repeated: {twice:?}");
    assert!(left >= 20, "half of the sends fail: {left}");
}
