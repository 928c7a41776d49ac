//! Chores: small things to do on GitHub. However often one comes, it is done once.

use domain::id::PrId;
use jiff::SignedDuration;
use platform::bridge::Handled;
use platform::github::{CheckRun, CheckState, Reaction};
use platform::guards;
use platform::outlets::message::{Chore, Message};
use tests::fuse::Blow;
use tests::stage::{Stage, look};
use world::{Deed, NewPull, Pr};

async fn open() -> (Stage, Pr, PrId) {
    let stage = Stage::as_app("mode = \"act\"");
    let pr = stage.opened(NewPull::default()).await;
    let id = Stage::id(&pr);
    (stage, pr, id)
}

async fn handled(stage: &Stage, chore: &Chore) -> Handled {
    let body = Message::Chore(chore.clone()).to_json().unwrap();
    stage.bridge.handle("m1", &body).await.unwrap()
}

fn done(stage: &Stage, deed: Deed) -> usize {
    look(&stage.world).effects_by("suture[bot]").filter(|effect| effect.deed == deed).count()
}

fn check_run(stage: &Stage, pr: &Pr, title: &str, summary: &str) -> CheckRun {
    let head = look(&stage.world).pull(pr).unwrap().head().parse().unwrap();
    CheckRun {
        name: "Suture".to_owned(),
        head,
        external_id: format!("suture:{pr}"),
        state: CheckState::Neutral,
        title: title.to_owned(),
        summary: summary.to_owned(),
        buttons: Vec::new(),
        completed_at: None,
    }
}

#[tokio::test]
async fn a_reaction_twice_is_one() {
    let (stage, pr, id) = open().await;
    let comment = look(&stage.world).person_comments(&pr, "maria", "hello").unwrap();
    let chore = Chore::React { repo: id.repo.clone(), subject: format!("IC_{comment}"), reaction: Reaction::Rocket };
    for _ in 0..2 {
        assert!(matches!(handled(&stage, &chore).await, Handled::Done(_)));
    }
    assert_eq!(done(&stage, Deed::ReactionAdded), 1);
    let gone = Chore::React { repo: id.repo, subject: "IC_999999".to_owned(), reaction: Reaction::Eyes };
    assert!(matches!(handled(&stage, &gone).await, Handled::Failed(_)), "a comment that was deleted is no poison");
}

#[tokio::test]
async fn a_comment_is_known_by_its_marker() {
    let (stage, pr, id) = open().await;
    let chore = |marker: &str| Chore::Comment {
        pr: id.clone(),
        marker: marker.to_owned(),
        text: "Suture looks after this one.".to_owned(),
        since: stage.now() - SignedDuration::from_mins(1),
    };
    assert!(matches!(handled(&stage, &chore("suture:hello")).await, Handled::Done(_)));
    assert!(matches!(handled(&stage, &chore("suture:hello")).await, Handled::Nothing(_)));
    assert!(matches!(handled(&stage, &chore("suture:other")).await, Handled::Done(_)));
    let said: Vec<String> = look(&stage.world).comments(&pr).map(|comment| comment.body.clone()).collect();
    assert_eq!(said.len(), 2);
    assert!(said[0].ends_with("<!-- suture:hello -->"), "{said:?}");
}

#[tokio::test]
async fn a_check_run_is_posted_on_change_only_and_never_taken_back() {
    let (stage, pr, id) = open().await;
    let chore = |title: &str, summary: &str, minute: i64| Chore::CheckRun {
        repo: id.repo.clone(),
        run: Box::new(check_run(&stage, &pr, title, summary)),
        as_of: tests::minute(minute),
    };
    assert!(matches!(handled(&stage, &chore("Waiting", "for Policy Bot", 1)).await, Handled::Done(_)));
    for minute in [1, 2] {
        let again = handled(&stage, &chore("Waiting", "for Policy Bot", minute)).await;
        assert!(matches!(again, Handled::Nothing(_)), "{again:?}");
    }
    assert!(matches!(handled(&stage, &chore("Healed", "after one rebuild", 5)).await, Handled::Done(_)));
    let late = handled(&stage, &chore("Waiting", "for Approver Bot", 4)).await;
    assert_eq!(late, Handled::Nothing(format!("check run {} shows something newer", run_id(&stage, &pr))));
    let long = handled(&stage, &chore("Long", &"ä".repeat(70_000), 6)).await;
    assert!(matches!(long, Handled::Done(_)), "{long:?}");
    assert!(matches!(handled(&stage, &chore("Long", &"ä".repeat(70_000), 7)).await, Handled::Nothing(_)));
    assert_eq!((done(&stage, Deed::CheckRunCreated), done(&stage, Deed::CheckRunUpdated)), (1, 2));
    let world = look(&stage.world);
    let ours = world.check_runs(&pr).iter().find(|run| run.name == "Suture").unwrap();
    assert_eq!((ours.title.as_str(), ours.summary.chars().count()), ("Long", 65_535));
}

#[tokio::test]
async fn without_an_app_there_is_no_check_run_and_no_call() {
    let stage = Stage::quiet();
    let pr = stage.opened(NewPull::default()).await;
    stage.fuse.set(usize::MAX, Blow::Before);
    let repo = Stage::id(&pr).repo;
    let chore = Chore::CheckRun { repo, run: Box::new(check_run(&stage, &pr, "Waiting", "")), as_of: stage.now() };
    let handled = handled(&stage, &chore).await;
    assert!(matches!(&handled, Handled::Nothing(why) if why.contains("for GitHub Apps")), "{handled:?}");
    assert_eq!(look(&stage.world).effects_by("suture[bot]").count(), 0);
}

fn run_id(stage: &Stage, pr: &Pr) -> u64 {
    look(&stage.world).check_runs(pr).iter().find(|run| run.name == "Suture").unwrap().id
}

/// The process dies, or loses the answer, at each call of each chore; then the message comes again.
#[tokio::test(start_paused = true)]
async fn every_call_of_every_chore_may_be_the_last() {
    let mut points = 0;
    for what in ["react", "comment", "check run"] {
        for how in Blow::ALL {
            for call in 1.. {
                let (stage, pr, id) = open().await;
                let comment = look(&stage.world).person_comments(&pr, "maria", "hello").unwrap();
                let (repo, since) = (id.repo.clone(), stage.now() - SignedDuration::from_mins(1));
                let (chore, deed) = match what {
                    "react" => {
                        let subject = format!("IC_{comment}");
                        (Chore::React { repo, subject, reaction: Reaction::Eyes }, Deed::ReactionAdded)
                    }
                    "comment" => {
                        let (marker, text) = ("suture:x".to_owned(), "Hello.".to_owned());
                        (Chore::Comment { pr: id, marker, text, since }, Deed::CommentCreated)
                    }
                    _ => {
                        let run = Box::new(check_run(&stage, &pr, "Waiting", "for Policy Bot"));
                        (Chore::CheckRun { repo, run, as_of: since }, Deed::CheckRunCreated)
                    }
                };
                let body = Message::Chore(chore).to_json().unwrap();
                stage.fuse.set(call, how);
                for _ in 0..6 {
                    let limit = std::time::Duration::from_secs(1);
                    let handled = tokio::time::timeout(limit, stage.bridge.handle("m1", &body)).await;
                    if matches!(handled, Ok(Ok(_))) {
                        break;
                    }
                    look(&stage.world).advance(SignedDuration::from_mins(6));
                }
                if stage.fuse.calls() < call {
                    break;
                }
                stage.fuse.remove();
                assert_eq!(done(&stage, deed), 1, "{what}, call {call}, {how:?}");
                points += 1;
            }
        }
    }
    println!("{points} points");
    assert!(points > 20, "{points}");
}

#[tokio::test]
async fn what_github_does_not_want_now_waits_on_the_queue_and_is_not_lost() {
    let (stage, _, id) = open().await;
    let until = stage.now() + SignedDuration::from_mins(5);
    guards::hold_off(&stage.store, "github", until, stage.now()).await.unwrap();
    let (marker, text) = ("suture:x".to_owned(), "Hello.".to_owned());
    let chore = Chore::Comment { pr: id, marker, text, since: stage.now() };
    assert!(matches!(handled(&stage, &chore).await, Handled::Waits(_)));
    assert_eq!(done(&stage, Deed::CommentCreated), 0);
    let (_, waiting) = stage.outside.take().expect("it is on the queue again");
    assert_eq!(Message::from_json(&waiting), Ok(Message::Chore(chore)));
    look(&stage.world).advance(SignedDuration::from_mins(6));
    assert!(matches!(stage.bridge.handle("m2", &waiting).await, Ok(Handled::Done(_))));
    assert_eq!(done(&stage, Deed::CommentCreated), 1);
}
