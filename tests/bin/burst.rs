//! A process for `tests/crash_recovery` to kill: opens pull requests and claims remedies on a database file as fast as it can, and
//! prints each acknowledged write. Every second message fails to publish.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "a failing test panics, and the test reads the output")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use platform::engine::Engine;
use platform::publish::{OutboundMessage, PublishError, Publisher};
use platform::store::dynamo::tables::TableNames;
use tests::local_aws::Dynoxide;
use tests::{acting, claim, minute, opened, pr, start};

#[derive(Default)]
struct AlternatingPublisher(AtomicBool);

impl Publisher for AlternatingPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        let publish = |message: &OutboundMessage| {
            if self.0.fetch_xor(true, Ordering::SeqCst) {
                return Err(PublishError("down".to_owned()));
            }
            println!("sent {}", message.id);
            Ok(())
        };
        messages.iter().map(publish).collect()
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let file = PathBuf::from(std::env::args().nth(1).expect("a database file"));
    let dynamo = Dynoxide::on_file(&file).await;
    let names = TableNames { state: "suture-state".to_owned(), events: "suture-events".to_owned() };
    let engine = Engine::new(dynamo.store_on(names).await, AlternatingPublisher::default(), acting());
    let engine = &engine;
    let worker = |worker: u64| async move {
        for n in 0.. {
            let pr = pr(1 + worker + 4 * n);
            engine.apply(&opened(&pr, format!("open-{}", pr.number), start()), start()).await.expect("opened");
            println!("opened {}", pr.number);
            let run = format!("run-{}", pr.number);
            let claim = claim(engine, &pr, &run, minute(5)).await;
            engine.apply(&claim, minute(5)).await.expect("claimed");
            println!("claimed {}", pr.number);
        }
    };
    tokio::join!(worker(0), worker(1), worker(2), worker(3));
}
