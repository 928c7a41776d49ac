//! Delivers effects: publishes them and deletes their rows. What cannot be published stays in the outbox, for a redelivery or the next
//! sweep.

use std::time::Duration;

use domain::decide::Effect;
use domain::event::Event;
use domain::id::{EffectId, PrId};
use jiff::Timestamp;
use serde_dynamo::Item;
use tokio::time::timeout;
use tracing::warn;

use super::{Engine, EngineError};
use crate::publish::{OutboundMessage, Publisher};
use crate::store::queries;
use crate::store::schema;
use crate::store::{Condition, MAX_WRITES, RowWrite, Store, StoreError};

/// Time limit for publishing. It must end before the response, because Lambda then freezes the process; the rest stays in the outbox.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

impl<S: Store, O: Publisher> Engine<S, O> {
    /// Publishes the remaining effects of an event that was applied before.
    pub(super) async fn deliver_remaining(
        &self,
        event: &Event,
        hop_0: &Item,
        now: Timestamp,
    ) -> Result<usize, EngineError> {
        let mut left = Vec::new();
        for id in schema::effects_of(event, hop_0) {
            if let Some(effect) = self.undelivered(&id, now).await? {
                left.push(effect);
            }
        }
        Ok(self.deliver(&event.pr, &left, now).await)
    }

    /// Reads an effect from the outbox.
    pub async fn undelivered(&self, id: &EffectId, now: Timestamp) -> Result<Option<Effect>, EngineError> {
        Ok(queries::read(&self.store, &schema::effect_key(id), now).await?)
    }

    /// Publishes an effect from the outbox; a missing one has been published. Returns whether it is published.
    pub async fn redeliver(&self, id: &EffectId, now: Timestamp) -> Result<bool, EngineError> {
        let Some(effect) = self.undelivered(id, now).await? else { return Ok(true) };
        let pr = schema::pr_of_effect(id);
        let pr = pr.ok_or_else(|| {
            StoreError::Corrupt(schema::effect_key(id), "the effect id names no pull request".to_owned())
        })?;
        Ok(self.deliver(&pr, &[effect], now).await == 0)
    }

    /// Publishes effects within the time limit and deletes them from the outbox. Returns how many remain in the outbox, for a redelivery
    /// or the next sweep.
    pub async fn deliver(&self, pr: &PrId, effects: &[Effect], now: Timestamp) -> usize {
        if effects.is_empty() {
            return 0;
        }
        let messages: Vec<OutboundMessage> =
            effects.iter().map(|effect| OutboundMessage::from_effect(pr, effect)).collect();
        let Ok(results) = timeout(PUBLISH_TIMEOUT, self.publisher.publish(&messages)).await else {
            warn!(%pr, effects = effects.len(), "publishing timed out; left in outbox");
            return effects.len();
        };
        let mut deletes = Vec::new();
        for (effect, result) in effects.iter().zip(results) {
            match result {
                Ok(()) => {
                    deletes.push(RowWrite::Delete { key: schema::effect_key(&effect.id), only_if: Condition::Always })
                }
                Err(error) => warn!(%pr, effect = %effect.id, %error, "delivery failed; left in outbox"),
            }
        }
        let left = effects.len() - deletes.len();
        for chunk in deletes.chunks(MAX_WRITES) {
            if let Err(error) = self.store.write(chunk.to_vec(), now).await {
                // They will be published again; receivers recognise them by id.
                warn!(%pr, %error, "cannot delete published effects from outbox");
            }
        }
        left
    }
}
