//! Publishes inside this process: commands to the durable queue, bus events to the fake bots, mails to a file and the
//! console.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::bus::DetailType;
use domain::text::Notice;
use fakes::Fakes;
use platform::clock::Clock;
use platform::publish::{Destination, OutboundMessage, PublishError, Publisher};
use serde_json::json;

use super::console::{Console, ConsoleEvent};
use super::queue::{Consumer, DurableQueue};

#[derive(Clone)]
pub(super) struct LocalPublisher {
    pub(super) queue: Arc<DurableQueue>,
    /// The fake bots. `None` with a real GitHub: real bots cannot read this process's event bus.
    pub(super) bots: Option<Arc<Mutex<Fakes>>>,
    pub(super) mails: PathBuf,
    pub(super) console: Console,
    pub(super) clock: Arc<dyn Clock>,
}

impl fmt::Debug for LocalPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalPublisher")
    }
}

impl Publisher for LocalPublisher {
    fn has_receiver(&self, detail_type: DetailType) -> bool {
        self.bots.is_some() || detail_type == DetailType::ReconcileRequested
    }

    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        let mut results = Vec::with_capacity(messages.len());
        for outbound in messages {
            let sent = match &outbound.destination {
                Destination::Queue { message, delay, hops, .. } => match message.to_json_after(*hops) {
                    Ok(body) => self.queue.send(message.queue().into(), body, *delay).await,
                    Err(error) => Err(error.to_string()),
                },
                Destination::Bus { detail_type, detail } => self.put_event(&outbound.id, *detail_type, detail).await,
                Destination::Notice(notice) => self.mail(&outbound.id, notice).map_err(|error| error.to_string()),
            };
            results.push(sent.map_err(PublishError));
        }
        results
    }
}

impl LocalPublisher {
    async fn put_event(&self, id: &str, detail_type: DetailType, detail: &str) -> Result<(), String> {
        if detail_type == DetailType::ReconcileRequested {
            let detail: serde_json::Value = serde_json::from_str(detail).map_err(|error| error.to_string())?;
            let event = json!({"id": id, "detail-type": detail_type.name(), "detail": detail});
            return self.queue.send(Consumer::Reconciler, event.to_string(), Duration::ZERO).await;
        }
        let Some(bots) = &self.bots else {
            return Err(format!("nobody receives {detail_type} on the event bus of this machine"));
        };
        let mut bots = bots.lock().unwrap_or_else(PoisonError::into_inner);
        bots.advance_to(self.clock.now());
        bots.bus_event(detail_type.name(), detail);
        Ok(())
    }

    /// Appends the mail to the file. It counts as sent once it is synced to disk.
    fn mail(&self, id: &str, notice: &Notice) -> std::io::Result<()> {
        let (at, Notice { subject, body, .. }) = (self.clock.now(), notice);
        let mut file = OpenOptions::new().create(true).append(true).open(&self.mails)?;
        file.write_all(format!("Date: {at}\nMessage-ID: <{id}>\nSubject: {subject}\n\n{body}\n\n").as_bytes())?;
        file.sync_data()?;
        self.console.show(ConsoleEvent::Mail { at, subject: subject.clone() });
        Ok(())
    }
}
