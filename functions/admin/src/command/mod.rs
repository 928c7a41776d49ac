//! What people want done: commands, reconcile requests, and actions on runs. When one of these answers, what was asked for is
//! durable. Nothing is carried out here.

mod reconcile;
mod run_action;
mod submit;

use std::time::Duration;

use domain::command::CommandMessage;
use platform::outlets::message::Message;
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use platform::store::Store;

use crate::query::Desk;

pub use self::reconcile::SweepAsk;
pub use self::run_action::Verb;
pub use self::submit::{Ask, Asked};

impl<S: Store, O: Outlets> Desk<S, O> {
    async fn send(&self, id: String, message: CommandMessage) -> Result<(), Undelivered> {
        let repo = message.repo.clone();
        let what = Content::Queue { message: Message::Command(message), repo, delay: Duration::ZERO };
        self.deliver(Parcel { id, what }).await
    }

    async fn deliver(&self, parcel: Parcel) -> Result<(), Undelivered> {
        let answer = self.engine.outlets().send(&[parcel]).await.into_iter().next();
        answer.unwrap_or_else(|| Err(Undelivered("nobody answered".to_owned())))
    }
}
