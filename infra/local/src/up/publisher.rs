//! Publishes inside this process: commands to the durable queue, bus events to the fake bots, mails to a file and the console.

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
    /// The fake bots. Real ones do not listen on a bus inside this process.
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
    async fn publish(&self, parcels: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        let mut results = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            let sent = match &parcel.destination {
                Destination::Queue { message, delay, .. } => match message.to_json() {
                    Ok(body) => self.queue.send(Consumer::Bridge, body, *delay).await,
                    Err(error) => Err(error.to_string()),
                },
                Destination::Bus { detail_type, detail } => self.put_event(&parcel.id, *detail_type, detail).await,
                Destination::Notice(notice) => self.mail(&parcel.id, notice).map_err(|error| error.to_string()),
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
            return Err(format!(
                "no bot receives {} on a bus inside this process: under [wake] choose \"comment\", \"label\" or \"http\"",
                detail_type.name()
            ));
        };
        let mut bots = bots.lock().unwrap_or_else(PoisonError::into_inner);
        bots.advance_to(self.clock.now());
        bots.bus_event(detail_type.name(), detail);
        Ok(())
    }

    /// A mail is sent when it is on disk.
    fn mail(&self, id: &str, notice: &Notice) -> std::io::Result<()> {
        let (at, Notice { subject, body }) = (self.clock.now(), notice);
        let mut file = OpenOptions::new().create(true).append(true).open(&self.mails)?;
        file.write_all(format!("Date: {at}\nMessage-ID: <{id}>\nSubject: {subject}\n\n{body}\n\n").as_bytes())?;
        file.sync_data()?;
        self.console.show(ConsoleEvent::Mail { at, subject: subject.clone() });
        Ok(())
    }
}
