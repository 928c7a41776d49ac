//! The result table: each measurement of Suture and of what it is compared with, its target, and whether the target is met.

use platform::store::Usage;

use crate::burst::Burst;
use crate::cost::Lifecycle;
use crate::fleet::{Cost, thousands};
use crate::hot::HotPullRequest;
use crate::instructions::{Instructions, LIMIT, LIMITED};
use crate::sizes::{LIMIT_BYTES, Size};
use crate::webhooks::Figures;

/// The rows of the table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<[String; 5]>,
}

impl Table {
    /// `met` is `None` if there is no target.
    fn row(&mut self, what: impl Into<String>, suture: String, beside: String, target: &str, met: Option<bool>) {
        let met = match met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        self.rows.push([what.into(), suture, beside, target.to_owned(), met.to_owned()]);
    }

    pub(crate) fn sizes(&mut self, sizes: &[Size]) {
        for size in sizes {
            let shown = format!("{:.2} MB ({:.2} MB unzipped)", mb(size.zipped), mb(size.bytes));
            let met = Some(size.zipped <= LIMIT_BYTES);
            let target = format!("≤ {:.0} MB", mb(LIMIT_BYTES));
            self.row(format!("{}, zipped", size.name), shown, String::new(), &target, met);
        }
    }

    pub(crate) fn webhooks(&mut self, [suture, probot, powertools]: &[Figures; 3]) {
        let mut one = |what: &str, value: fn(&Figures) -> f64, unit: &str, share: Option<(f64, bool)>| {
            let (ours, first, second) = (value(suture), value(probot), value(powertools));
            let beside = format!(
                "Probot {}{unit} (×{:.1}), Powertools {}{unit} (×{:.1})",
                show(first),
                first / ours,
                show(second),
                second / ours
            );
            let (target, met) = match share {
                Some((share, true)) => (format!("≤ 1/{share} of each"), Some(ours * share <= first.min(second))),
                Some((share, false)) => (format!("≤ 1/{share} of Probot"), Some(ours * share <= first)),
                None => (String::new(), None),
            };
            self.row(what, format!("{}{unit}", show(ours)), beside, &target, met);
        };
        one("start, CPU", |f| f.init_ms, " ms", Some((20.0, false)));
        one("first webhook, CPU", |f| f.first_ms, " ms", None);
        one("warm, CPU per webhook, all 51", |f| f.warm_ms, " ms", Some((10.0, true)));
        one("warm, CPU per webhook that is recorded", |f| f.recorded_ms, " ms", Some((10.0, true)));
        one("peak memory", |f| f.peak_mb, " MB", Some((5.0, false)));
        one("requests per webhook, all 51", |f| f.requests, "", None);
        one("requests per webhook that is recorded", |f| f.recorded_requests, "", None);
        let shown = format!("{}", suture.most_requests);
        let beside = format!("Probot {}, Powertools {}", probot.most_requests, powertools.most_requests);
        self.row("most requests of one webhook", shown, beside, "≤ 2", Some(suture.most_requests <= 2));
        let separate = format!("{} + {}", show(suture.counter), show(suture.sha_rows));
        let met = Some(suture.counter <= 1.0 && suture.sha_rows <= 1.0);
        self.row("and the shared counter + the SHA row", separate, String::new(), "≤ 1 + 1", met);
        let bytes = |f: &Figures| thousands(f.rejected_bytes.round() as u64);
        let beside = format!("Probot {}, Powertools {}", bytes(probot), bytes(powertools));
        let met = Some(suture.rejected_bytes <= 300.0);
        self.row("bytes of log per rejected webhook", bytes(suture), beside, "≤ 300", met);
    }

    pub(crate) fn instructions(&mut self, counted: &Instructions) {
        for (name, &count) in counted {
            let (target, met) = if name == LIMITED { ("≤ 400,000", Some(count <= LIMIT)) } else { ("", None) };
            self.row(format!("instructions, {name}"), thousands(count), String::new(), target, met);
        }
    }

    pub(crate) fn sweeps(&mut self, costs: &[Cost]) {
        for cost in costs {
            let of = format!("sweep, {} open, {} stale", thousands(cost.open), thousands(cost.stale));
            let entries = cost.index_entries;
            self.row(
                format!("{of}: index entries per stale"),
                show(entries),
                String::new(),
                "≤ 1.05",
                Some(entries <= 1.05),
            );
            let requests = cost.github_requests;
            // A page holds 25 pull requests; below that, one request is the minimum.
            let met = (cost.stale >= 25).then_some(requests <= 0.04);
            self.row(format!("{of}: GitHub requests per stale"), show(requests), String::new(), "≤ 0.04", met);
            let cpu = format!("{} ms", show(cost.cpu_ms));
            let store_requests = format!("{} requests to the store each", show(cost.store_requests));
            self.row(format!("{of}: CPU per stale"), cpu, store_requests, "", None);
            let peak = format!("{} MB", show(cost.peak_mb));
            self.row(format!("{of}: peak memory"), peak, String::new(), "≤ 128 MB", Some(cost.peak_mb <= 128.0));
        }
    }

    pub(crate) fn bursts(&mut self, bursts: &[Burst]) {
        let [suture, probot] = bursts else { return };
        let of = format!("burst of {}", thousands(suture.webhooks as u64));
        let rate = |burst: &Burst| format!("{:.0} per s, {} ms CPU each", burst.per_second, show(burst.cpu_ms));
        self.row(format!("{of}: throughput"), rate(suture), format!("Probot {}", rate(probot)), "", None);
        let times = |burst: &Burst| format!("{} / {} ms", show(burst.p50_ms), show(burst.p99_ms));
        self.row(format!("{of}: p50 / p99"), times(suture), format!("Probot {}", times(probot)), "", None);
        self.row(format!("{of}: lost"), suture.lost.to_string(), String::new(), "0", Some(suture.lost == 0));
    }

    pub(crate) fn hot_pull_request(&mut self, hot: &HotPullRequest) {
        let of = "300 reports on one pull request";
        let times = format!("{} / {} ms, {} deferred", show(hot.p50_ms), show(hot.p99_ms), hot.deferred);
        self.row(format!("{of}: p50 / p99"), times, String::new(), "p99 ≤ 1,000 ms", Some(hot.p99_ms <= 1_000.0));
        let logged = format!("{:.1} s, {} lost", hot.logged_secs, hot.lost);
        let met = hot.logged_secs <= 15.0 && hot.lost == 0;
        self.row(format!("{of}: all in the log"), logged, String::new(), "≤ 15 s, 0 lost", Some(met));
        let shared = hot.facts_per_transaction;
        self.row(
            format!("{of}: deferred facts per transaction"),
            show(shared),
            String::new(),
            "≥ 5",
            Some(shared >= 5.0),
        );
    }

    pub(crate) fn costs(&mut self, lifecycles: &[Lifecycle], idle: &Usage, monthly: f64) {
        for lifecycle in lifecycles {
            let shown = format!(
                "{} webhooks, {} requests to the store, {:.1} units, {} sweeps saw it, {} to GitHub and Jenkins",
                lifecycle.webhooks,
                lifecycle.store_requests,
                lifecycle.units,
                lifecycle.sweeps_that_saw_it,
                lifecycle.github_requests
            );
            let money = format!("${:.2} per million webhooks", lifecycle.dollars_per_million);
            self.row(format!("a pull request, {} ({} min)", lifecycle.name, lifecycle.minutes), shown, money, "", None);
        }
        let shown = format!("{} requests, {:.1} units", idle.requests, idle.units);
        self.row("a sweep with nothing due", shown, format!("${monthly:.2} a month, every minute"), "", None);
    }

    /// As Markdown.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("\n| what | Suture | compared with | target | met |\n|---|---|---|---|---|\n");
        for row in &self.rows {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        text
    }
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn show(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}
