//! What the platform warns about while it works, into the same file as the functions' own lines.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use platform::clock::Clock;
use platform::telemetry::{Line, Log};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Listens to warnings and errors, and to nothing else.
pub(super) struct Warnings {
    log: Log,
    clock: Arc<dyn Clock>,
}

impl Warnings {
    /// From now on, everywhere in this process. A second one is not listened to.
    pub(super) fn listen(log: Log, clock: Arc<dyn Clock>) {
        let _ = tracing::subscriber::set_global_default(Self { log, clock });
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // A condition that did not hold is an answer like any other; dynoxide warns of each.
        *metadata.level() <= Level::WARN && metadata.is_event() && !metadata.target().starts_with("dynoxide")
    }

    fn event(&self, event: &Event<'_>) {
        self.log.write(&line(event, self.clock.now()));
    }

    // Nobody asks for spans: `enabled` refuses them.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn line(event: &Event<'_>, now: Timestamp) -> Line {
    let mut said = FieldText(String::new());
    event.record(&mut said);
    let metadata = event.metadata();
    Line::new("local", now)
        .with("level", metadata.level().as_str())
        .with("from", metadata.target())
        .with("warning", said.0)
}

/// All fields in one text, as people read them.
struct FieldText(String);

impl Visit for FieldText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let separator = if self.0.is_empty() { "" } else { ", " };
        self.0.push_str(&match field.name() {
            "message" => format!("{separator}{value:?}"),
            name => format!("{separator}{name}: {value:?}"),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Mutex;

    use platform::clock::SystemClock;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_warning_is_a_line_and_a_remark_is_none() {
        let shared = Shared::default();
        let warnings = Warnings { log: Log::to(shared.clone()), clock: Arc::new(SystemClock) };
        tracing::subscriber::with_default(warnings, || {
            tracing::warn!(pr = %"acme/shop#7", "an effect stays in the table");
            tracing::info!("all is well");
        });
        let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("an effect stays in the table, pr: acme/shop#7"), "{text}");
    }
}
