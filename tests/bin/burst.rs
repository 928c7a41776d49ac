//! A process to be killed: opens pull requests and claims remedies on a database file as fast as it can, and says on standard
//! output what it has been told is done. Every other effect cannot be delivered. Only for `tests/crash_recovery`.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "a test may stop, and its output is what it is for")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use platform::engine::Engine;
use platform::publish::{OutboundMessage, PublishError, Publisher};
use platform::store::dynamo::tables::TableNames;
use tests::local_aws::Dynoxide;
use tests::{acting, claim, minute, opened, pr, start};

#[derive(Default)]
struct EveryOther(AtomicBool);

impl Publisher for EveryOther {
    async fn publish(&self, parcels: &[OutboundMessage]) -> Vec<Result<(), PublishError>> {
        let one = |parcel: &OutboundMessage| {
            if self.0.fetch_xor(true, Ordering::SeqCst) {
                return Err(PublishError("down".to_owned()));
            }
            println!("sent {}", parcel.id);
            Ok(())
        };
        parcels.iter().map(one).collect()
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let file = PathBuf::from(std::env::args().nth(1).expect("a database file"));
    let rig = Dynoxide::on_file(&file).await;
    let names = TableNames { state: "suture-state".to_owned(), events: "suture-events".to_owned() };
    let engine = Engine::new(rig.store_on(names).await, EveryOther::default(), acting());
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
