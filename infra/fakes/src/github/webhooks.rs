//! Outgoing webhooks (signed, delayed, subject to faults) and the delivery log, from which they can be redelivered. The
//! payloads are in `payload`.

use aws_lc_rs::hmac;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::model::PrIx;
use crate::bots::codegenie::LOGIN;
use crate::clock::{TimedEvent, later, stamp};
use crate::fakes::{FakePrId, Fakes};
use crate::faults::Fault;
use crate::settings::FakeBot;

/// The endpoint that receives a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookTarget {
    /// `POST /webhook/github`.
    GitHub,
    /// `POST /webhook/jenkins`.
    Jenkins,
    /// `POST /webhook/bot`, as this bot.
    Bot(FakeBot),
}

impl WebhookTarget {
    pub fn path(self) -> &'static str {
        match self {
            Self::GitHub => "/webhook/github",
            Self::Jenkins => "/webhook/jenkins",
            Self::Bot(_) => "/webhook/bot",
        }
    }
}

/// A webhook to deliver.
#[derive(Debug, Clone)]
pub struct WebhookDelivery {
    /// Id of the attempt: a redelivery has a new one.
    pub id: u64,
    /// `X-GitHub-Delivery`: a redelivery has the same one.
    pub guid: String,
    pub target: WebhookTarget,
    /// `X-GitHub-Event`.
    pub event: String,
    /// The payload's action, if it has one.
    pub action: Option<String>,
    /// All headers, including the signature.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub due: Timestamp,
    /// Whether this is a requested redelivery.
    pub redelivery: bool,
    /// The pull request concerned, if any.
    pub pr: Option<FakePrId>,
}

/// A pull request of earlier fakes, unknown to these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierPull {
    pub pr: FakePrId,
    pub node_id: Option<String>,
    pub head_ref: String,
    pub head: String,
}

/// An entry of GitHub's delivery log.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryRecord {
    pub(crate) delivery: WebhookDelivery,
    /// The response's status code; `None` before it is sent, 0 without a response.
    pub(crate) code: Option<u16>,
    /// Lost by a fault: logged, but not delivered.
    lost: bool,
    /// Never sent, and hidden from the log.
    hidden: bool,
}

/// Number of recent deliveries whose bodies are always kept. Fewer would break redelivery, all would fill the memory.
const BODIES_KEPT: usize = 5_000;
/// How long GitHub lists deliveries and can redeliver them.
const REDELIVERY_DAYS: i64 = 3;

/// The status under which GitHub lists a delivery: one without a response as 504.
pub(crate) fn listed_code(sent: &DeliveryRecord) -> u16 {
    sent.code.filter(|code| *code > 0).unwrap_or(504)
}

impl Fakes {
    /// Takes the webhooks sent since the last call, in order. Each counts as answered with 200 unless
    /// [`Fakes::webhook_answered`] is called.
    pub fn take_webhooks(&mut self) -> Vec<WebhookDelivery> {
        std::mem::take(&mut self.outbox)
    }

    /// Records the response to a delivery; 0 means no response. Failed deliveries can be redelivered.
    pub fn webhook_answered(&mut self, delivery: &WebhookDelivery, code: u16) {
        // The log is ordered by id, but has gaps.
        if let Ok(place) = self.deliveries.binary_search_by_key(&delivery.id, |sent| sent.delivery.id) {
            let sent = &mut self.deliveries[place];
            sent.code = Some(code);
            sent.delivery.body = delivery.body.clone();
        }
    }

    /// Schedules a webhook, optionally about a pull request.
    pub(crate) fn emit(&mut self, event: &str, action: Option<&str>, pr: Option<PrIx>, body: Bytes) {
        let fault = self.webhook_fault(pr);
        let mut ms = self.webhook_rng.between(self.settings.timing.webhook_ms);
        if fault == Some(Fault::WebhookLate) {
            ms += self.webhook_rng.between((120_000, 1_800_000));
        } else if fault == Some(Fault::WebhookReordered) {
            ms += self.webhook_rng.between((5_000, 20_000));
        }
        let place = self.record_delivery(WebhookTarget::GitHub, event, action, body, pr);
        self.deliveries[place].lost = fault == Some(Fault::WebhookLost);
        self.deliveries[place].hidden = fault == Some(Fault::WebhookNeverSent);
        self.clock.after_ms(ms, TimedEvent::Send(place));
        if fault == Some(Fault::WebhookDoubled) {
            let again = ms + self.webhook_rng.between((500, 60_000));
            self.clock.after_ms(again, TimedEvent::Send(place));
        }
    }

    /// Sends a `closed` webhook for a pull request of earlier fakes, with the few fields known of it.
    pub fn tell_closed(&mut self, gone: &EarlierPull) {
        let now = stamp(self.now());
        let Some(repo) = self.repo_ix(&gone.pr.repo) else { return };
        let base = &self.github.repo(repo).settings.base;
        let pull = json!({
            "number": gone.pr.number, "node_id": gone.node_id, "state": "closed", "merged": false, "draft": false,
            "title": gone.head_ref, "body": null, "labels": [], "user": {"login": LOGIN, "type": "Bot"},
            "head": {"ref": gone.head_ref, "sha": gone.head}, "base": {"ref": base, "sha": self.github.base_tip(repo)},
            "created_at": now, "updated_at": now, "closed_at": now, "merged_at": null,
        });
        let own = json!({"action": "closed", "number": gone.pr.number, "pull_request": pull});
        let body = self.envelope(repo, "maria", &own);
        let place = self.record_delivery(WebhookTarget::GitHub, "pull_request", Some("closed"), body, None);
        self.clock.after_ms(0, TimedEvent::Send(place));
    }

    /// Sends a webhook of Jenkins or a bot: without faults, and not in the delivery log.
    pub(crate) fn send_direct(&mut self, target: WebhookTarget, event: &str, pr: Option<PrIx>, payload: &Value) {
        let place = self.record_delivery(target, event, None, Bytes::from(payload.to_string()), pr);
        let ms = self.webhook_rng.between(self.settings.timing.webhook_ms);
        self.clock.after_ms(ms, TimedEvent::Send(place));
    }

    fn record_delivery(
        &mut self,
        target: WebhookTarget,
        event: &str,
        action: Option<&str>,
        body: Bytes,
        pr: Option<PrIx>,
    ) -> usize {
        let guid = self.webhook_rng.guid();
        let delivery = WebhookDelivery {
            id: self.github.id(),
            headers: self.headers_of(target, event, &guid, &body),
            guid,
            target,
            event: event.to_owned(),
            action: action.map(str::to_owned),
            body,
            due: self.now(),
            redelivery: false,
            pr: pr.map(|ix| self.name_of(ix)),
        };
        self.deliveries.push(DeliveryRecord { delivery, code: None, lost: false, hidden: false });
        self.forget_old_bodies();
        self.deliveries.len() - 1
    }

    /// Drops the bodies of old successful deliveries, to limit memory: in practice they are not redelivered.
    fn forget_old_bodies(&mut self) {
        while self.bodies_forgotten + BODIES_KEPT < self.deliveries.len() {
            let now = self.clock.now;
            let old = &mut self.deliveries[self.bodies_forgotten];
            if later(old.delivery.due, 3_600_000) > now {
                return;
            }
            if old.code.is_some_and(|code| (200..300).contains(&code)) {
                old.delivery.body = Bytes::new();
                old.delivery.headers = Vec::new();
            }
            self.bodies_forgotten += 1;
        }
    }

    fn headers_of(&self, target: WebhookTarget, event: &str, guid: &str, body: &[u8]) -> Vec<(String, String)> {
        let settings = &self.settings;
        let own = |name: &str, value: String| (name.to_owned(), value);
        let mut headers = vec![own("content-type", "application/json".to_owned())];
        match target {
            WebhookTarget::GitHub => headers.extend([
                own("user-agent", "GitHub-Hookshot/world".to_owned()),
                own("x-github-event", event.to_owned()),
                own("x-github-delivery", guid.to_owned()),
                own("x-github-hook-id", "1".to_owned()),
                own("x-github-hook-installation-target-type", "integration".to_owned()),
                own("x-github-hook-installation-target-id", settings.app_id.to_string()),
                own("x-hub-signature-256", signature(&settings.webhook_secret, body)),
            ]),
            // Many of these senders support only a fixed header. A signature is sent as well, for receivers that check
            // it.
            WebhookTarget::Jenkins | WebhookTarget::Bot(_) => {
                let secret = match target {
                    WebhookTarget::Bot(bot) => settings.bot_secret(bot),
                    WebhookTarget::Jenkins | WebhookTarget::GitHub => settings.jenkins_secret.clone(),
                };
                let secret = secret.as_str();
                headers.extend([
                    own("authorization", format!("Bearer {secret}")),
                    own("x-hub-signature-256", signature(secret, body)),
                ]);
            }
        }
        headers
    }

    pub(crate) fn send(&mut self, place: usize) {
        let now = self.now();
        let sent = &mut self.deliveries[place];
        sent.delivery.due = now;
        sent.code = Some(if sent.lost || sent.hidden { 0 } else { 200 });
        if !sent.lost && !sent.hidden {
            self.outbox.push(sent.delivery.clone());
        }
    }

    /// The deliveries GitHub lists: App webhooks of the last three days, newest first.
    pub(crate) fn listed_deliveries(&self) -> impl Iterator<Item = (usize, &DeliveryRecord)> {
        let oldest = self.now().checked_sub(SignedDuration::from_hours(24 * REDELIVERY_DAYS)).unwrap_or(Timestamp::MIN);
        let shown = move |sent: &DeliveryRecord| {
            sent.delivery.target == WebhookTarget::GitHub && sent.code.is_some() && !sent.hidden
        };
        self.deliveries
            .iter()
            .enumerate()
            .rev()
            .take_while(move |(_, sent)| later(sent.delivery.due, 3_600_000) >= oldest)
            .filter(move |(_, sent)| sent.delivery.due >= oldest && shown(sent))
    }

    pub(crate) fn delivery_json(&self, sent: &DeliveryRecord) -> Value {
        let code = listed_code(sent);
        let status = match code {
            504 => "timed out",
            200..=299 => "OK",
            _ => "Invalid HTTP Response",
        };
        json!({
            "id": sent.delivery.id, "guid": sent.delivery.guid, "delivered_at": stamp(sent.delivery.due),
            "redelivery": sent.delivery.redelivery, "duration": 0.27, "status": status, "status_code": code,
            "event": sent.delivery.event, "action": sent.delivery.action,
            "installation_id": self.settings.installation_id, "repository_id": null, "throttled_at": null,
        })
    }

    /// Redelivers a listed delivery with the same GUID and a new attempt id.
    pub(crate) fn redeliver(&mut self, id: u64) -> Result<(), &'static str> {
        let Some(place) = self.listed_deliveries().find(|(_, sent)| sent.delivery.id == id).map(|(place, _)| place)
        else {
            return Err("Not Found");
        };
        let mut delivery = self.deliveries[place].delivery.clone();
        if delivery.body.is_empty() {
            return Err("Delivery payload is no longer available");
        }
        delivery.id = self.github.id();
        delivery.redelivery = true;
        self.deliveries.push(DeliveryRecord { delivery, code: None, lost: false, hidden: false });
        let ms = self.webhook_rng.between(self.settings.timing.webhook_ms);
        self.clock.after_ms(ms, TimedEvent::Send(self.deliveries.len() - 1));
        Ok(())
    }
}

/// GitHub's signature of a body.
pub(crate) fn signature(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, body);
    let mut text = String::with_capacity(71);
    text.push_str("sha256=");
    for byte in tag.as_ref() {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_matches_githubs_documented_example() {
        assert_eq!(
            signature("It's a Secret to Everybody", b"Hello, World!"),
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
    }
}
