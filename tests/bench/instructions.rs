//! Counts instructions per webhook with callgrind, on the release build of the function without a network. The count is the
//! difference between many and few webhooks, so the start of the process does not matter, nor does the load of the machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tests::local_aws::Folder;
use webhook::signature::sign;

use crate::payloads::{Delivery, SECRET, delivery_id, examples};

/// The limit for parsing, deciding and writing rows, as an average over all examples.
pub(crate) const LIMIT: u64 = 400_000;
/// The name of the limited count. Recorded kinds of events need more, ignored ones less.
pub(crate) const LIMITED: &str = "all 51: the rest";
/// A count above this multiple of the recorded one fails the check.
const TOLERANCE: f64 = 1.05;
/// Kinds of events that are counted separately.
const KINDS: [&str; 5] =
    ["pull_request.opened", "check_run.created", "check_run.completed", "check_suite.completed", "pull_request.closed"];

/// Instructions per webhook by name; `signature` in a name means the HMAC alone.
pub(crate) type Instructions = BTreeMap<String, u64>;

/// Counts instructions for a mix of all examples and for some kinds.
pub(crate) fn count(root: &Path, release: &Path) -> Instructions {
    let examples = examples(root);
    let folder = Folder::new();
    let mut counted = Instructions::new();
    // Each kind is measured on open pull requests, except `opened` itself.
    let mut lists: Vec<(String, Vec<Delivery>, bool)> = vec![("all 51".to_owned(), examples.clone(), false)];
    for kind in KINDS {
        let one = examples.iter().find(|example| example.kind == kind).expect("an example");
        lists.push((kind.to_owned(), vec![one.clone()], kind != "pull_request.opened"));
    }
    for (name, list, opened_first) in lists {
        let (few, many) = if list.len() > 1 { (51, 51 * 4) } else { (10, 60) };
        let rounds = (many / list.len()) as u64;
        let mut lines = String::new();
        if opened_first {
            (0..rounds).for_each(|round| lines.push_str(&line(&examples[0], round, 900)));
        }
        let before = if opened_first { many } else { 0 };
        for round in 0..rounds {
            list.iter().enumerate().for_each(|(place, example)| lines.push_str(&line(example, round, place)));
        }
        let file = folder.path().join("deliveries.jsonl");
        fs::write(&file, lines).expect("a file");
        let run = |what: &str, count: usize| instructions(release, &file, what, count);
        let per = |what: &str, few: usize, many: usize| {
            (run(what, many).saturating_sub(run(what, few))) / (many - few) as u64
        };
        let signature = per("signature", before + few, before + many);
        let whole = per("whole", before + few, before + many);
        counted.insert(format!("{name}: signature"), signature);
        counted.insert(format!("{name}: the rest"), whole.saturating_sub(signature));
    }
    counted
}

fn line(delivery: &Delivery, round: u64, place: usize) -> String {
    let delivery = delivery.about(round + 1);
    let body = delivery.body();
    let signature = sign(SECRET, body.as_bytes());
    let id = delivery_id(round, place);
    format!("{}\n", json!({"event": delivery.event(), "id": id, "signature": signature, "body": body}))
}

/// The instruction count of one run.
fn instructions(release: &Path, file: &Path, what: &str, count: usize) -> u64 {
    let out = file.with_extension("callgrind");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--callgrind-out-file={}", out.display())])
        .arg(release.join("examples/pure"))
        .arg(file)
        .args([what, &count.to_string(), SECRET])
        .output()
        .expect("valgrind: on Debian, apt-get install valgrind");
    let log = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&run.stdout).trim(), count.to_string(), "not all webhooks succeeded: {log}");
    let collected = log.lines().find_map(|line| line.split("Collected : ").nth(1));
    collected
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("no instruction count in valgrind's output: {log}"))
}

/// The content of instructions.txt: one line per count, with its name.
pub(crate) fn text(counted: &Instructions) -> String {
    let mut text = String::from(
        "# Instructions per webhook (callgrind, release build, valgrind's processor). Written by `scripts/bench`;\n\
         # `scripts/bench --check-instructions` fails when one that is not a signature is more than 5 % above.\n",
    );
    for (name, count) in counted {
        writeln!(text, "{count:>9}  {name}").expect("a text");
    }
    text
}

/// The recorded counts.
pub(crate) fn recorded(root: &Path) -> Instructions {
    let text = fs::read_to_string(root.join("tests/bench/instructions.txt")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.trim().split_once("  "));
    lines.filter_map(|(count, name)| Some((name.trim().to_owned(), count.parse().ok()?))).collect()
}

/// The counts that exceed the limit or the recorded count.
pub(crate) fn failures(counted: &Instructions, recorded: &Instructions) -> Vec<String> {
    let mut failures = Vec::new();
    for (name, &now) in counted.iter().filter(|(name, _)| name.ends_with("the rest")) {
        if name == LIMITED && now > LIMIT {
            failures.push(format!("{name}: {now} instructions, the limit is {LIMIT}"));
        }
        match recorded.get(name) {
            Some(&then) if now as f64 > then as f64 * TOLERANCE => {
                failures.push(format!(
                    "{name}: {now} instructions, {then} recorded: find the cause, or record the new count with \
                     scripts/bench --record-instructions"
                ));
            }
            Some(_) => {}
            None => failures.push(format!("{name} has no recorded count: run scripts/bench --record-instructions")),
        }
    }
    failures
}
