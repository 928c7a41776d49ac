//! Faults between Suture's functions and the store, the queue and the schedule. Faults of GitHub, Jenkins and the bots are in the
//! fakes.

use std::collections::BTreeSet;

use clap::ValueEnum;
use fakes::{Fault, FaultRates};

/// A fault inside Suture. Its name on the command line is in kebab case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum InternalFault {
    StoreThrottled,
    /// The store rejects a transaction because of a concurrent one, without naming the rows.
    StoreConflict,
    /// The store executes the request, but the response is lost.
    StoreAnswerLost,
    /// The queue delivers a message to two workers.
    MessageDoubled,
    /// The queue delivers a message minutes late and out of order.
    MessageLate,
    /// A process dies before or after an outgoing call.
    ProcessKilled,
    /// The clocks of processes differ by up to two minutes either way.
    ClockSkewed,
    TickLost,
    /// The schedule delivers a tick twice; the second may overlap the next sweep.
    TickDoubled,
    /// Not a fault, but as unpredictable: users send commands, push, hold, merge and close.
    Users,
}

impl InternalFault {
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The faults that a simulation injects.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultSelection {
    /// As on the command line, for the command that repeats a seed.
    pub text: String,
    pub world: FaultRates,
    pub internal: BTreeSet<InternalFault>,
    /// The factor by which all faults are more frequent.
    pub times: u32,
}

impl FaultSelection {
    /// `all`, `none`, or names with commas between.
    ///
    /// # Errors
    /// If a name is unknown; the error lists the known ones.
    pub fn named(list: &str) -> Result<Self, String> {
        let plan = |world: FaultRates, internal: &[InternalFault]| Self {
            text: list.to_owned(),
            world,
            internal: internal.iter().copied().collect(),
            times: 1,
        };
        match list {
            "all" => return Ok(plan(FaultRates::all(), InternalFault::value_variants())),
            "none" | "" => return Ok(plan(FaultRates::none(), &[])),
            _ => {}
        }
        let (mut world, mut internal) = (Vec::new(), Vec::new());
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match (Fault::named(name), InternalFault::from_str(name, false)) {
                (Some(fault), _) => world.push(fault),
                (None, Ok(fault)) => internal.push(fault),
                (None, Err(_)) => return Err(unknown(name)),
            }
        }
        Ok(plan(FaultRates::only(world), &internal))
    }

    /// Multiplies the frequency of faults by `times`, except for faults of pull requests, which are frequent enough.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        let more = |share: f64| (share * f64::from(times)).min(0.3);
        (self.world.webhooks, self.world.requests) = (more(self.world.webhooks), more(self.world.requests));
        Self { times, ..self }
    }

    #[must_use]
    pub fn has(&self, fault: InternalFault) -> bool {
        self.internal.contains(&fault)
    }

    /// The names of all faults.
    #[must_use]
    pub fn known() -> Vec<String> {
        let internal = InternalFault::value_variants().iter().map(|fault| fault.name());
        Fault::ALL.into_iter().map(|fault| fault.name().to_owned()).chain(internal).collect()
    }
}

fn unknown(name: &str) -> String {
    let known = FaultSelection::known().join(", ");
    format!("unknown fault `{name}`: write all, none, or a comma-separated list of: {known}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_chosen_by_name() {
        let sizes = |plan: &FaultSelection| (plan.world.chosen.len(), plan.internal.len());
        assert_eq!(sizes(&FaultSelection::named("all").unwrap()), (29, 10));
        assert_eq!(sizes(&FaultSelection::named("none").unwrap()), (0, 0));
        let some = FaultSelection::named("conflict, store-throttled").unwrap();
        assert!(some.world.chosen.contains(&Fault::Conflict) && some.has(InternalFault::StoreThrottled));
        assert_eq!(sizes(&some), (1, 1));
        let unknown = FaultSelection::named("store-trottled").unwrap_err();
        assert!(
            unknown.contains("`store-trottled`") && unknown.contains("store-throttled, store-conflict"),
            "{unknown}"
        );
    }

    #[test]
    fn fault_names_are_unique() {
        let names: BTreeSet<String> = FaultSelection::known().into_iter().collect();
        assert_eq!(names.len(), FaultSelection::known().len());
    }
}
