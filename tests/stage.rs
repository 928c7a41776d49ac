//! The stage: the pretended world in virtual time, the webhook function, the engine on a store in memory, and the Car Bridge,
//! wired as in production but without sockets. A scenario says what happens and lets time pass.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use car_bridge::{Again, Bridge, Handled};
use domain::comment::Notice;
use domain::id::PrId;
use domain::policy::Policies;
use domain::pull_request::Record;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use platform::clock::{Clock, Pause};
use platform::engine::Engine;
use platform::github::{Credentials, GitHub};
use platform::http::{BoxError, Transport};
use platform::jenkins::{Jenkins, Login};
use platform::outlets::message::Message;
use platform::outlets::{Content, Outlets, Parcel, Undelivered};
use platform::telemetry::Log;
use testbed::MemoryStore;
use webhook::github::Own;
use webhook::signature::Secrets;
use webhook::{Senders, Webhook};

use fakes::{Delivery, Fakes, Faults, NewPull, NoResponse, Pr, Settings, Target};

use crate::fuse::{Blow, Fuse, FusedOutlets, FusedStore, dead, late};

/// The world, shared by all who look at it.
pub type Shared = Arc<Mutex<Fakes>>;

/// Locks it.
///
/// # Panics
/// If somebody panicked while holding it.
pub fn look(world: &Shared) -> MutexGuard<'_, Fakes> {
    world.lock().expect("nobody panicked")
}

/// The world's own time; waiting lets it pass.
#[derive(Clone)]
pub struct WorldClock(pub Shared);

impl std::fmt::Debug for WorldClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorldClock")
    }
}

impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        look(&self.0).now()
    }

    fn sleep(&self, pause: Duration) -> Pause {
        let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::ZERO);
        look(&self.0).advance(pause);
        Box::pin(std::future::ready(()))
    }
}

/// An App with a key made for these tests.
///
/// # Panics
/// If no key can be made.
#[must_use]
pub fn app() -> Credentials {
    static APP: LazyLock<Credentials> = LazyLock::new(|| {
        let key = KeyPair::generate(KeySize::Rsa2048).expect("a key");
        let der: Pkcs8V1Der<'_> = key.as_der().expect("a key");
        let body = BASE64_STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
        Credentials::app(4711, &pem).expect("credentials")
    });
    APP.clone()
}

/// Which of the world's surfaces.
#[derive(Debug, Clone, Copy)]
pub enum Surface {
    /// GitHub's.
    GitHub,
    /// Jenkins'.
    Jenkins,
}

/// Requests go straight into the world, through a fuse.
#[must_use]
pub fn transport(world: &Shared, surface: Surface, fuse: &Arc<Fuse>) -> Transport {
    let (world, fuse) = (Arc::clone(world), Arc::clone(fuse));
    Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
        let (world, blow) = (Arc::clone(&world), fuse.next());
        async move {
            if blow == Some(Blow::Before) {
                return dead().await;
            }
            if blow == Some(Blow::Late) {
                late().await;
            }
            if blow == Some(Blow::Unmade) {
                return Err("it did not get through".into());
            }
            let answer: Result<Response<Bytes>, NoResponse> = match surface {
                Surface::GitHub => look(&world).github(request),
                Surface::Jenkins => look(&world).jenkins(request),
            };
            match blow {
                None | Some(Blow::Before | Blow::Late | Blow::Unmade) => {
                    answer.map_err(|silence| -> BoxError { format!("{silence:?}").into() })
                }
                Some(Blow::After) => dead().await,
                Some(Blow::AnswerLost) => Err("the answer was lost".into()),
            }
        }
    }))
}

/// What left Suture: messages wait for the Car Bridge, events go to the bots, mails are kept.
#[derive(Clone)]
pub struct Outside {
    world: Shared,
    queue: Arc<Mutex<VecDeque<(u64, String)>>>,
    mails: Arc<Mutex<Vec<Notice>>>,
    next: Arc<Mutex<u64>>,
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outside")
    }
}

impl Outside {
    /// The way out into this world.
    #[must_use]
    pub fn new(world: &Shared) -> Self {
        Self { world: Arc::clone(world), queue: Arc::default(), mails: Arc::default(), next: Arc::default() }
    }

    /// Puts a message onto the queue.
    ///
    /// # Panics
    /// If it cannot be written down.
    pub fn enqueue(&self, message: &Message) {
        let mut next = self.next.lock().expect("nobody panicked");
        *next += 1;
        let body = message.to_json().expect("a message");
        self.queue.lock().expect("nobody panicked").push_back((*next, body));
    }

    /// The next message: its name and its body.
    ///
    /// # Panics
    /// If somebody panicked.
    #[must_use]
    pub fn take(&self) -> Option<(u64, String)> {
        self.queue.lock().expect("nobody panicked").pop_front()
    }

    /// The mails people got.
    ///
    /// # Panics
    /// If somebody panicked.
    #[must_use]
    pub fn mails(&self) -> Vec<Notice> {
        self.mails.lock().expect("nobody panicked").clone()
    }
}

impl Outlets for Outside {
    async fn send(&self, parcels: &[Parcel]) -> Vec<Result<(), Undelivered>> {
        for parcel in parcels {
            match &parcel.what {
                Content::Queue { message, .. } => self.enqueue(message),
                Content::Bus { detail_type, detail } => {
                    look(&self.world).bus_event(detail_type.name(), detail);
                }
                Content::People(notice) => self.mails.lock().expect("nobody panicked").push(notice.clone()),
            }
        }
        parcels.iter().map(|_| Ok(())).collect()
    }
}

/// Everything together.
pub struct Stage {
    /// The world.
    pub world: Shared,
    /// The store that webhook and bridge share.
    pub store: Arc<MemoryStore>,
    /// What left.
    pub outside: Outside,
    /// The Car Bridge, behind a fuse.
    pub bridge: Bridge<FusedStore<Arc<MemoryStore>>, FusedOutlets<Outside>>,
    /// The fuse.
    pub fuse: Arc<Fuse>,
    webhook: Webhook<Arc<MemoryStore>, Outside>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stage")
    }
}

impl Stage {
    /// A world without faults, unless forced; Suture acts.
    #[must_use]
    pub fn quiet() -> Self {
        Self::with("mode = \"act\"", |_| {})
    }

    /// A world as it is set up, and Suture as it is configured.
    ///
    /// # Panics
    /// If the configuration is wrong.
    #[must_use]
    pub fn with(config: &str, set_up: impl FnOnce(&mut Settings)) -> Self {
        Self::signed_in(None, config, set_up)
    }

    /// The same, where Suture is an App: only Apps write check runs.
    #[must_use]
    pub fn as_app(config: &str) -> Self {
        Self::signed_in(Some(app()), config, |_| {})
    }

    fn signed_in(credentials: Option<Credentials>, config: &str, set_up: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings { faults: Faults::none(), secondary_limits: false, ..Settings::default() };
        set_up(&mut settings);
        let secrets = |text: &str| Secrets::parse(text).expect("a secret");
        let senders = Senders {
            github: secrets(&settings.webhook_secret),
            jenkins: Some(secrets(&settings.jenkins_secret)),
            bot: Some(secrets(&settings.bot_secret)),
        };
        let login = Login::Token { user: settings.jenkins_user.clone(), token: settings.jenkins_token.clone() };
        let token = settings.tokens.first().map(|(token, _)| token.clone()).unwrap_or_default();
        let (api_url, jenkins_url) = (settings.api_url.clone(), settings.jenkins_url.clone());
        let world: Shared = Arc::new(Mutex::new(Fakes::new(1, settings)));
        let policies = Policies::parse(config).expect("a configuration");
        let store = Arc::new(MemoryStore::new());
        let outside = Outside::new(&world);
        let fuse = Arc::new(Fuse::default());
        let clock: Arc<dyn Clock> = Arc::new(WorldClock(Arc::clone(&world)));
        let github_settings = platform::github::Settings {
            base_url: api_url.parse().expect("an address"),
            ..platform::github::Settings::default()
        };
        let github = GitHub::with_service(
            &credentials.unwrap_or_else(|| Credentials::token(&token)),
            github_settings,
            transport(&world, Surface::GitHub, &fuse),
            Arc::clone(&clock),
        );
        let jenkins = Jenkins::with_service(
            login,
            platform::jenkins::Settings::new(jenkins_url.parse().expect("an address")),
            transport(&world, Surface::Jenkins, &fuse),
            Arc::clone(&clock),
        );
        let outer = car_bridge::World {
            github,
            jenkins: Some(jenkins),
            http: transport(&world, Surface::GitHub, &fuse),
            clock,
        };
        let fused = FusedStore { store: Arc::clone(&store), fuse: Arc::clone(&fuse) };
        let outlets = FusedOutlets { outlets: outside.clone(), fuse: Arc::clone(&fuse) };
        let engine = Engine::new(fused, outlets, policies.clone());
        let bridge = Bridge::new(engine, outer);
        let webhook = Webhook::new(
            Arc::clone(&store),
            outside.clone(),
            policies,
            Own::default(),
            senders,
            Log::to(std::io::sink()),
        );
        Self { world, store, outside, bridge, fuse, webhook }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        look(&self.world).now()
    }

    /// CodeGenie opens a pull request, and Suture hears of it.
    pub async fn opened(&self, new: NewPull) -> Pr {
        let pr = look(&self.world).open_pr(new);
        look(&self.world).advance(SignedDuration::from_secs(3));
        self.hear().await;
        pr
    }

    /// The name Suture has for it.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn id(pr: &Pr) -> PrId {
        format!("{}#{}", pr.repo, pr.number).parse().expect("a pull request")
    }

    /// Its record.
    ///
    /// # Panics
    /// If there is none.
    pub async fn record(&self, pr: &Pr) -> Record {
        let record = self.bridge.engine().load(&Self::id(pr), self.now()).await;
        record.expect("a store").expect("a record")
    }

    /// Suture hears everything that was sent.
    ///
    /// # Panics
    /// If a webhook is answered with a server error.
    pub async fn hear(&self) {
        loop {
            let deliveries = look(&self.world).take_webhooks();
            if deliveries.is_empty() {
                return;
            }
            self.hear_these(deliveries).await;
        }
    }

    /// Suture hears these.
    ///
    /// # Panics
    /// If a webhook is answered with a server error.
    pub async fn hear_these(&self, deliveries: Vec<Delivery>) {
        for delivery in deliveries {
            let path = match delivery.target {
                Target::GitHub => "/webhook/github",
                Target::Jenkins => "/webhook/jenkins",
                Target::Bot => "/webhook/bot",
            };
            let mut request = Request::builder().method("POST").uri(path);
            for (name, value) in &delivery.headers {
                request = request.header(name, value);
            }
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            let answer = self.webhook.handle(&parts, &delivery.body, self.now()).await;
            assert!(answer.status().as_u16() < 500, "{}: {}", delivery.event, answer.body());
            eprintln!("{} {} {:?} {}", self.now(), delivery.event, delivery.action, answer.body());
            look(&self.world).webhook_answered(&delivery, answer.status().as_u16());
        }
    }

    /// The Car Bridge takes everything from the queue, once.
    pub async fn carry_out(&self) -> Vec<Result<Handled, Again>> {
        let mut handled = Vec::new();
        while let Some((id, body)) = self.outside.take() {
            let one = self.bridge.handle(&format!("m{id}"), &body).await;
            // Shown when a test fails.
            eprintln!("{} {one:?}", self.now());
            handled.push(one);
        }
        handled
    }

    /// Time passes; webhooks are heard and messages carried out as they come.
    pub async fn pass(&self, minutes: i64) {
        let until = self.now() + SignedDuration::from_mins(minutes);
        loop {
            self.hear().await;
            self.carry_out().await;
            let next = look(&self.world).next_event_at().filter(|at| *at <= until);
            let Some(at) = next else { break };
            look(&self.world).advance_to(at);
        }
        look(&self.world).advance_to(until);
        self.hear().await;
        self.carry_out().await;
    }

    /// A sweep has found that something is to be done: the claim, as the reconciler makes it.
    pub async fn claimed(&self, pr: &Pr, run: &str) -> platform::engine::Applied {
        let fact = crate::claim_by(self.bridge.engine(), &Self::id(pr), run, self.now()).await;
        self.bridge.engine().apply(&fact, self.now()).await.expect("a store")
    }
}
