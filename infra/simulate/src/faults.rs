//! What can go wrong inside: between the functions and what they stand on. What goes wrong outside is the world's.

use std::collections::BTreeSet;

use world::{Fault, Faults};

/// A way to go wrong inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InternalFault {
    /// The table refuses a request: too many at once.
    StoreThrottled,
    /// Two transactions meet, and the table refuses one without saying which rows.
    StoreConflict,
    /// The table does what it was asked, and its answer is lost.
    StoreAnswerLost,
    /// The queue hands a message to two workers.
    MessageDoubled,
    /// The queue hands a message over minutes late, after those that came later.
    MessageLate,
    /// A function's process dies before or after any call that leaves it.
    ProcessKilled,
    /// The clocks of processes differ by up to two minutes either way.
    ClockSkewed,
    /// A tick of the schedule never comes.
    TickLost,
    /// A tick of the schedule comes twice; the second may meet the next sweep.
    TickDoubled,
    /// Not a fault, but as unforeseeable: people command, push, hold, merge and close.
    Users,
}

impl InternalFault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::StoreThrottled,
        Self::StoreConflict,
        Self::StoreAnswerLost,
        Self::MessageDoubled,
        Self::MessageLate,
        Self::ProcessKilled,
        Self::ClockSkewed,
        Self::TickLost,
        Self::TickDoubled,
        Self::Users,
    ];

    /// Its name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::StoreThrottled => "store-throttled",
            Self::StoreConflict => "store-conflict",
            Self::StoreAnswerLost => "store-answer-lost",
            Self::MessageDoubled => "message-doubled",
            Self::MessageLate => "message-late",
            Self::ProcessKilled => "process-killed",
            Self::ClockSkewed => "clock-skewed",
            Self::TickLost => "tick-lost",
            Self::TickDoubled => "tick-doubled",
            Self::Users => "users",
        }
    }
}

/// Everything that may go wrong in a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultPlan {
    /// As it was asked for, to be asked for again.
    pub text: String,
    /// Outside.
    pub world: Faults,
    /// InternalFault.
    pub inside: BTreeSet<InternalFault>,
    /// How many times as often as usual.
    pub times: u32,
}

impl FaultPlan {
    /// `all`, `none`, or names with commas between.
    ///
    /// # Errors
    /// A sentence that names the unknown one and lists those there are.
    pub fn named(list: &str) -> Result<Self, String> {
        let all = |world: Faults, inside: &[InternalFault]| Self {
            text: list.to_owned(),
            world,
            inside: inside.iter().copied().collect(),
            times: 1,
        };
        match list {
            "all" => return Ok(all(Faults::all(), &InternalFault::ALL)),
            "none" | "" => return Ok(all(Faults::none(), &[])),
            _ => {}
        }
        let (mut world, mut inside) = (Vec::new(), Vec::new());
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match (Fault::named(name), InternalFault::ALL.into_iter().find(|fault| fault.name() == name)) {
                (Some(fault), _) => world.push(fault),
                (None, Some(fault)) => inside.push(fault),
                (None, None) => return Err(unknown(name)),
            }
        }
        Ok(all(Faults::only(world), &inside))
    }

    /// The same, so many times as often; lives are struck as often as before, since they are struck often enough.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        let more = |share: f64| (share * f64::from(times)).min(0.3);
        (self.world.webhooks, self.world.requests) = (more(self.world.webhooks), more(self.world.requests));
        Self { times, ..self }
    }

    /// Whether this may happen.
    #[must_use]
    pub fn has(&self, fault: InternalFault) -> bool {
        self.inside.contains(&fault)
    }
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = Fault::ALL
        .into_iter()
        .map(Fault::name)
        .chain(InternalFault::ALL.into_iter().map(InternalFault::name))
        .collect();
    format!("there is no fault `{name}`: write all, none, or some of these with commas between: {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_chosen_by_name() {
        let all = FaultPlan::named("all").unwrap();
        assert_eq!((all.world.chosen.len(), all.inside.len()), (29, 10));
        let none = FaultPlan::named("none").unwrap();
        assert_eq!((none.world.chosen.len(), none.inside.len()), (0, 0));
        let some = FaultPlan::named("conflict, store-throttled").unwrap();
        assert!(some.world.chosen.contains(&Fault::Conflict) && some.has(InternalFault::StoreThrottled));
        assert_eq!((some.world.chosen.len(), some.inside.len()), (1, 1));
        let violated = FaultPlan::named("store-trottled").unwrap_err();
        assert!(
            violated.contains("`store-trottled`") && violated.contains("store-throttled, store-conflict"),
            "{wrong}"
        );
    }

    #[test]
    fn no_name_stands_for_two() {
        let names: BTreeSet<&str> = Fault::ALL
            .into_iter()
            .map(Fault::name)
            .chain(InternalFault::ALL.into_iter().map(InternalFault::name))
            .collect();
        assert_eq!(names.len(), Fault::ALL.len() + InternalFault::ALL.len());
    }
}
