//! The ways out in this process: commands go onto the durable queue, events to whoever listens on the bus, mails into a file
//! and onto the terminal.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use domain::comment::Notice;
use domain::route::DetailType;
use jiff::Timestamp;
use platform::clock::Clock;
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use serde_json::json;
use world::World;

use super::console::{Console, ConsoleEvent};
use super::queue::{Consumer, Queue};

/// Who listens on the bus, besides the reconciler.
#[derive(Clone)]
pub(super) enum Bots {
    /// Those of the pretended world.
    Pretended(Arc<Mutex<World>>),
    /// Nobody: no bot can hear a bus that lives in this process.
    None,
}

/// The three ways out.
#[derive(Clone)]
pub(super) struct LocalPublisher {
    pub(super) queue: Arc<Queue>,
    pub(super) bots: Bots,
    pub(super) mails: PathBuf,
    pub(super) lines: Console,
    pub(super) clock: Arc<dyn Clock>,
}

impl fmt::Debug for LocalPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalPublisher")
    }
}

impl Outlets for LocalPublisher {
    async fn send(&self, parcels: &[Parcel]) -> Vec<Result<(), Undelivered>> {
        let mut answers = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            let sent = match &parcel.what {
                Content::Queue { message, delay, .. } => match message.to_json() {
                    Ok(body) => self.queue.send(Consumer::Bridge, body, *delay).await,
                    Err(error) => Err(error.to_string()),
                },
                Content::Bus { detail_type, detail } => self.onto_the_bus(&parcel.id, *detail_type, detail).await,
                Content::People(notice) => self.to_people(&parcel.id, notice),
            };
            answers.push(sent.map_err(Undelivered));
        }
        answers
    }
}

impl LocalPublisher {
    async fn onto_the_bus(&self, id: &str, detail_type: DetailType, detail: &str) -> Result<(), String> {
        if detail_type == DetailType::ReconcileRequested {
            let detail: serde_json::Value = serde_json::from_str(detail).map_err(|error| error.to_string())?;
            let event = json!({"id": id, "detail-type": detail_type.name(), "detail": detail});
            return self.queue.send(Consumer::Reconciler, event.to_string(), std::time::Duration::ZERO).await;
        }
        match &self.bots {
            Bots::Pretended(world) => {
                let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
                world.advance_to(self.clock.now());
                world.bus_event(detail_type.name(), detail);
                Ok(())
            }
            Bots::None => Err(format!(
                "no bot hears {} on a bus inside this process: under [wake] choose \"comment\", \"label\" or \"http\"",
                detail_type.name()
            )),
        }
    }

    /// A mail is sent when it is on disk.
    fn to_people(&self, id: &str, notice: &Notice) -> Result<(), String> {
        let at = self.clock.now();
        let mut file =
            OpenOptions::new().create(true).append(true).open(&self.mails).map_err(|error| error.to_string())?;
        let text = mail(id, notice, at);
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(|error| error.to_string())?;
        self.lines.tell(ConsoleEvent::Mail { at, subject: notice.subject.clone() });
        Ok(())
    }
}

fn mail(id: &str, notice: &Notice, at: Timestamp) -> String {
    format!("Date: {at}\nMessage-ID: <{id}>\nSubject: {}\n\n{}\n\n", notice.subject, notice.body)
}
