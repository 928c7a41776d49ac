//! Mails of a sweep are held back until it knows how many there are: a few go out one by one, many become one digest.
//! Until they are out, they are rows in the table like every effect, so that none is lost with the sweep.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::comment::{self, Notice};
use domain::id::EffectId;
use jiff::Timestamp;
use tokio::time::timeout;
use tracing::warn;

use platform::hash::hashed;
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use platform::rows;
use platform::store::versioned::write_if;
use platform::store::{MOST_WRITES, OnlyIf, Store, StoreError, Write};

pub const MOST_SINGLE: usize = 5;
const SEND_FOR: Duration = Duration::from_secs(5);

/// Publishes everything at once but mails, which it holds back.
#[derive(Debug)]
pub(crate) struct DigestingPublisher<O> {
    outlets: O,
    held: Mutex<Vec<Parcel>>,
}

impl<O: Outlets> DigestingPublisher<O> {
    pub(crate) fn new(outlets: O) -> Self {
        Self { outlets, held: Mutex::default() }
    }

    /// Sends one thing at once, whatever it is.
    pub(crate) async fn send_now(&self, parcel: Parcel) -> Result<(), Undelivered> {
        let sent = timeout(SEND_FOR, self.outlets.send_one(parcel)).await;
        sent.unwrap_or_else(|_| Err(Undelivered("it took too long".to_owned())))
    }

    fn take(&self) -> Vec<Parcel> {
        std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn hold(&self, parcel: &Parcel) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.iter().all(|known| known.id != parcel.id) {
            held.push(parcel.clone());
        }
    }

    pub(crate) fn holds(&self, id: &EffectId) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|parcel| parcel.id == id.as_str())
    }

    /// Sends the mails that were held back, and deletes their rows. Answers how many mails went out; what could not be
    /// sent stays in the table, for later.
    pub(crate) async fn send_held<S: Store>(
        &self,
        store: &S,
        later: Timestamp,
        now: Timestamp,
    ) -> Result<u32, StoreError> {
        let held = self.take();
        if held.is_empty() {
            return Ok(0);
        }
        let is_digest = held.len() > MOST_SINGLE;
        let parcels = if is_digest { vec![digest(&held)] } else { held.clone() };
        let answers = timeout(SEND_FOR, self.outlets.send(&parcels))
            .await
            .unwrap_or_else(|_| parcels.iter().map(|_| Err(Undelivered("it took too long".to_owned()))).collect());
        let sent = answers.iter().filter(|answer| answer.is_ok()).count();
        let (mut gone, mut stay) = (Vec::new(), Vec::new());
        for (place, parcel) in held.iter().enumerate() {
            let key = rows::effect_key(&EffectId::new(parcel.id.as_str()));
            let answer = answers.get(if is_digest { 0 } else { place });
            if matches!(answer, Some(Ok(()))) {
                gone.push(Write::Delete { key, only_if: OnlyIf::Always });
            } else {
                warn!(effect = %parcel.id, ?answer, "cannot send a mail; left in outbox");
                stay.push(rows::redate(key, later, OnlyIf::Present));
            }
        }
        for chunk in gone.chunks(MOST_WRITES) {
            store.write(chunk.to_vec(), now).await?;
        }
        for write in stay {
            // If it is refused, another sweep has sent it meanwhile.
            write_if(store, write, now).await?;
        }
        Ok(u32::try_from(sent).unwrap_or(u32::MAX))
    }
}

/// One mail for many. The same mails make the same one, so that a repetition can be told.
fn digest(held: &[Parcel]) -> Parcel {
    let mut ids: Vec<&str> = held.iter().map(|parcel| parcel.id.as_str()).collect();
    // The next sweep finds them in another order.
    ids.sort_unstable();
    let notices: Vec<&Notice> = held.iter().filter_map(notice_of).collect();
    Parcel { id: format!("digest-{}", &hashed(&ids)[..16]), what: Content::People(comment::sweep::digest(&notices)) }
}

fn notice_of(parcel: &Parcel) -> Option<&Notice> {
    match &parcel.what {
        Content::People(notice) => Some(notice),
        Content::Queue { .. } | Content::Bus { .. } => None,
    }
}

impl<O: Outlets> Outlets for DigestingPublisher<O> {
    async fn send(&self, parcels: &[Parcel]) -> Vec<Result<(), Undelivered>> {
        let others: Vec<Parcel> = parcels.iter().filter(|parcel| notice_of(parcel).is_none()).cloned().collect();
        let answers = if others.is_empty() { Vec::new() } else { self.outlets.send(&others).await };
        let mut answers = answers.into_iter();
        let lost = || Err(Undelivered("nobody answered for it".to_owned()));
        parcels
            .iter()
            .map(|parcel| {
                if notice_of(parcel).is_none() {
                    return answers.next().unwrap_or_else(lost);
                }
                self.hold(parcel);
                Err(Undelivered("kept until the sweep knows how many mails there are".to_owned()))
            })
            .collect()
    }
}
