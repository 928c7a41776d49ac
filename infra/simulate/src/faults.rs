//! Faults inside Suture: between the functions and the store, the queue and the schedule. Faults outside are the fakes'.

use std::collections::BTreeSet;

use clap::ValueEnum;
use fakes::{Fault, FaultRates};

/// A fault inside Suture. On the command line each has its name in kebab case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum InternalFault {
    StoreThrottled,
    /// The store refuses a transaction because of another one, without saying which rows.
    StoreConflict,
    /// The store does what it was asked, and its answer is lost.
    StoreAnswerLost,
    /// The queue gives a message to two workers.
    MessageDoubled,
    /// The queue gives a message minutes late, after those that were sent later.
    MessageLate,
    /// A process dies before or after a call that leaves it.
    ProcessKilled,
    /// The clocks of processes differ by up to two minutes either way.
    ClockSkewed,
    TickLost,
    /// A tick of the schedule comes twice; the second may overlap the next sweep.
    TickDoubled,
    /// Not a fault, but as unpredictable: users command, push, hold, merge and close.
    Users,
}

impl InternalFault {
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Which faults a simulation injects.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultSelection {
    /// As on the command line, to print the command that repeats a seed.
    pub text: String,
    pub world: FaultRates,
    pub internal: BTreeSet<InternalFault>,
    /// How many times as often as usual.
    pub times: u32,
}

impl FaultSelection {
    /// `all`, `none`, or names with commas between.
    ///
    /// # Errors
    /// Names the unknown fault and lists the known ones.
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

    /// The same, `times` as often. Pull requests are struck as often as before: they are struck often enough.
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

    /// The names of all faults there are.
    #[must_use]
    pub fn known() -> Vec<String> {
        let internal = InternalFault::value_variants().iter().map(|fault| fault.name());
        Fault::ALL.into_iter().map(|fault| fault.name().to_owned()).chain(internal).collect()
    }
}

fn unknown(name: &str) -> String {
    let known = FaultSelection::known().join(", ");
    format!("there is no fault `{name}`: write all, none, or some of these with commas between: {known}")
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
