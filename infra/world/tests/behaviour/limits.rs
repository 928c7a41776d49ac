//! Limits, conditional requests, and requests that go wrong.

use serde_json::{Value, json};
use world::{Deed, Fault, NewPull, Settings, Silence, World};

use super::asking::{ask, try_github};
use super::lives::{minutes, opened};

const PULL: &str = "/repos/acme/payments/pulls/1";
const TOKEN: (&str, &str) = ("authorization", "Bearer world-token");

#[test]
fn an_unchanged_answer_costs_nothing() {
    let (mut world, _) = opened();
    let path = "/repos/acme/payments";
    let first = ask(&mut world, "GET", path, Value::Null);
    let tag = first.header("etag").unwrap().to_owned();
    let again = try_github(&mut world, "GET", path, &[TOKEN, ("if-none-match", &tag)], &Value::Null).unwrap();
    assert_eq!((again.code, again.text.as_str()), (304, ""));
    assert_eq!(again.header("x-ratelimit-used"), Some("1"));
    let other = try_github(&mut world, "GET", path, &[TOKEN, ("if-none-match", "W/\"0\"")], &Value::Null).unwrap();
    assert_eq!((other.code, other.header("x-ratelimit-used")), (200, Some("2")));
}

#[test]
fn the_hour_s_allowance_ends_and_begins_anew() {
    let mut world = World::new(1, Settings { rate_limit: 3, ..Settings::default() });
    world.open_pr(NewPull::default());
    for left in ["2", "1", "0"] {
        assert_eq!(ask(&mut world, "GET", PULL, Value::Null).header("x-ratelimit-remaining"), Some(left));
    }
    let refused = ask(&mut world, "GET", PULL, Value::Null);
    assert_eq!((refused.code, refused.header("x-ratelimit-remaining")), (403, Some("0")));
    let reset: i64 = refused.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert_eq!(reset, world.now().as_second() + 3_600);
    minutes(&mut world, 60);
    assert_eq!(ask(&mut world, "GET", PULL, Value::Null).code, 200);
}

#[test]
fn too_many_writes_in_a_minute_meet_the_secondary_limit() {
    let (mut world, _) = opened();
    let write = |world: &mut World| ask(world, "POST", "/repos/acme/payments/issues/1/comments", json!({"body": "x"}));
    let codes: Vec<u16> = (0..81).map(|_| write(&mut world).code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 80);
    let refused = write(&mut world);
    assert_eq!((refused.code, refused.header("retry-after")), (403, Some("60")));
    assert!(
        refused.header("x-ratelimit-remaining").unwrap().parse::<u64>().unwrap() > 4_000,
        "with thousands remaining"
    );
    assert!(refused.json["message"].as_str().unwrap().contains("secondary rate limit"));
    minutes(&mut world, 1);
    assert_eq!(write(&mut world).code, 201);
}

#[test]
fn requests_go_wrong_as_told() {
    let (mut world, pr) = opened();
    let comment = |world: &mut World| {
        let answer =
            try_github(world, "POST", "/repos/acme/payments/issues/1/comments", &[TOKEN], &json!({"body": "x"}));
        answer.map(|got| got.code)
    };
    world.force(Fault::ApiTooMany, &pr);
    assert_eq!(comment(&mut world), Ok(429));
    world.force(Fault::ApiError, &pr);
    assert_eq!(comment(&mut world), Ok(500));
    world.force(Fault::ApiTimeout, &pr);
    assert_eq!(comment(&mut world), Err(Silence { applied: false }));
    assert_eq!(world.comments(&pr).count(), 0, "none of these did anything");
    world.force(Fault::AnswerLost, &pr);
    assert_eq!(comment(&mut world), Err(Silence { applied: true }));
    assert_eq!(world.comments(&pr).count(), 1, "done, although no answer came");
    world.force_request(Fault::ApiForbidden);
    assert_eq!(comment(&mut world), Ok(403));
    assert_eq!(comment(&mut world), Ok(403), "asking again before retry-after does not help");
    minutes(&mut world, 1);
    assert_eq!(comment(&mut world), Ok(201));
    assert_eq!(world.effects_by("suture-operator").filter(|it| it.deed == Deed::CommentCreated).count(), 2);
}

#[test]
fn a_lost_answer_waits_for_a_write() {
    let (mut world, pr) = opened();
    world.force(Fault::AnswerLost, &pr);
    assert_eq!(ask(&mut world, "GET", PULL, Value::Null).code, 200);
    let lost = try_github(&mut world, "PATCH", PULL, &[TOKEN], &json!({"state": "closed"}));
    assert_eq!(lost.err(), Some(Silence { applied: true }));
    assert!(!world.pull(&pr).unwrap().is_open());
}

#[test]
fn chance_strikes_requests_when_it_may() {
    let faults = world::Faults { requests: 0.5, ..world::Faults::only([Fault::ApiError]) };
    let mut world = World::new(5, Settings { faults, ..Settings::default() });
    world.open_pr(NewPull::default());
    let failed = (0..200).filter(|_| ask(&mut world, "GET", PULL, Value::Null).code == 500).count();
    assert!((60..140).contains(&failed), "{failed}");
}
