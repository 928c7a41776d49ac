//! Rate limits, conditional requests, and faults of requests.

use fakes::{AuditedAction, FakeSettings, Fakes, Fault, NewPullRequest, NoResponse};
use serde_json::{Value, json};

use super::client::{ask, try_github};
use super::lifecycle::{minutes, opened};

const PULL: &str = "/repos/acme/payments/pulls/1";
const TOKEN: (&str, &str) = ("authorization", "Bearer world-token");

#[test]
fn not_modified_response_is_free() {
    let (mut fakes, _) = opened();
    let path = "/repos/acme/payments";
    let first = ask(&mut fakes, "GET", path, Value::Null);
    let tag = first.header("etag").unwrap().to_owned();
    let again = try_github(&mut fakes, "GET", path, &[TOKEN, ("if-none-match", &tag)], &Value::Null).unwrap();
    assert_eq!((again.code, again.text.as_str()), (304, ""));
    assert_eq!(again.header("x-ratelimit-used"), Some("1"));
    let other = try_github(&mut fakes, "GET", path, &[TOKEN, ("if-none-match", "W/\"0\"")], &Value::Null).unwrap();
    assert_eq!((other.code, other.header("x-ratelimit-used")), (200, Some("2")));
}

#[test]
fn rate_limit_is_enforced_and_resets_after_an_hour() {
    let mut fakes = Fakes::new(1, FakeSettings { rate_limit: 3, ..FakeSettings::default() });
    fakes.open_pr(NewPullRequest::default());
    for left in ["2", "1", "0"] {
        assert_eq!(ask(&mut fakes, "GET", PULL, Value::Null).header("x-ratelimit-remaining"), Some(left));
    }
    let refused = ask(&mut fakes, "GET", PULL, Value::Null);
    assert_eq!((refused.code, refused.header("x-ratelimit-remaining")), (403, Some("0")));
    let reset: i64 = refused.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert_eq!(reset, fakes.now().as_second() + 3_600);
    minutes(&mut fakes, 60);
    assert_eq!(ask(&mut fakes, "GET", PULL, Value::Null).code, 200);
}

#[test]
fn secondary_limit_rejects_too_many_writes_per_minute() {
    let (mut fakes, _) = opened();
    let write = |fakes: &mut Fakes| ask(fakes, "POST", "/repos/acme/payments/issues/1/comments", json!({"body": "x"}));
    let codes: Vec<u16> = (0..81).map(|_| write(&mut fakes).code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 80);
    let refused = write(&mut fakes);
    assert_eq!((refused.code, refused.header("retry-after")), (403, Some("60")));
    assert!(
        refused.header("x-ratelimit-remaining").unwrap().parse::<u64>().unwrap() > 4_000,
        "with thousands remaining"
    );
    assert!(refused.json["message"].as_str().unwrap().contains("secondary rate limit"));
    minutes(&mut fakes, 1);
    assert_eq!(write(&mut fakes).code, 201);
}

#[test]
fn forced_request_faults_strike() {
    let (mut fakes, pr) = opened();
    let comment = |fakes: &mut Fakes| {
        let response =
            try_github(fakes, "POST", "/repos/acme/payments/issues/1/comments", &[TOKEN], &json!({"body": "x"}));
        response.map(|response| response.code)
    };
    fakes.force(Fault::ApiTooMany, &pr);
    assert_eq!(comment(&mut fakes), Ok(429));
    fakes.force(Fault::ApiError, &pr);
    assert_eq!(comment(&mut fakes), Ok(500));
    fakes.force(Fault::ApiTimeout, &pr);
    assert_eq!(comment(&mut fakes), Err(NoResponse { applied: false }));
    assert_eq!(fakes.comments(&pr).count(), 0, "none of these requests was applied");
    fakes.force(Fault::AnswerLost, &pr);
    assert_eq!(comment(&mut fakes), Err(NoResponse { applied: true }));
    assert_eq!(fakes.comments(&pr).count(), 1, "applied, although the response was lost");
    fakes.force_request(Fault::ApiForbidden);
    assert_eq!(comment(&mut fakes), Ok(403));
    assert_eq!(comment(&mut fakes), Ok(403), "still limited until retry-after has passed");
    minutes(&mut fakes, 1);
    assert_eq!(comment(&mut fakes), Ok(201));
    assert_eq!(fakes.audit_by("suture-operator").filter(|it| it.action == AuditedAction::CommentCreated).count(), 2);
}

#[test]
fn answer_lost_strikes_only_writes() {
    let (mut fakes, pr) = opened();
    fakes.force(Fault::AnswerLost, &pr);
    assert_eq!(ask(&mut fakes, "GET", PULL, Value::Null).code, 200);
    let lost = try_github(&mut fakes, "PATCH", PULL, &[TOKEN], &json!({"state": "closed"}));
    assert_eq!(lost.err(), Some(NoResponse { applied: true }));
    assert!(!fakes.pull(&pr).unwrap().is_open());
}

#[test]
fn random_request_faults_strike_at_their_rate() {
    let faults = fakes::FaultRates { requests: 0.5, ..fakes::FaultRates::only([Fault::ApiError]) };
    let mut fakes = Fakes::new(5, FakeSettings { faults, ..FakeSettings::default() });
    fakes.open_pr(NewPullRequest::default());
    let failed = (0..200).filter(|_| ask(&mut fakes, "GET", PULL, Value::Null).code == 500).count();
    assert!((60..140).contains(&failed), "{failed}");
}
