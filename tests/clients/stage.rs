//! A stage for the clients: a clock that only moves when somebody sleeps, a record of what was sent, and either the
//! simulated world or made-up answers behind it.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use fakes::Fakes;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use platform::clock::{Clock, Pause};
use platform::github::{Credentials, GitHub, Settings};
use platform::http::{BoxError, Transport};
use platform::jenkins::{self, Jenkins, Login};
use serde_json::Value;

/// A request as it was sent.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Option<Value>,
}

impl Seen {
    fn of(request: &Request<Bytes>) -> Self {
        Self {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers: request.headers().clone(),
            body: serde_json::from_slice(request.body()).ok(),
        }
    }

    /// Method and path.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What was sent, and what was slept.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) seen: Mutex<Vec<Seen>>,
    pub(crate) pauses: Mutex<Vec<Duration>>,
}

impl Record {
    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(Seen::line).collect()
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen.lock().unwrap().last().cloned().expect("something was sent")
    }

    /// What was slept since this was last asked.
    pub(crate) fn take_pauses(&self) -> Vec<Duration> {
        std::mem::take(&mut self.pauses.lock().unwrap())
    }
}

/// A time that only moves when somebody sleeps.
#[derive(Debug)]
pub(crate) struct Still {
    now: Mutex<Timestamp>,
    record: Arc<Record>,
}

impl Still {
    pub(crate) fn move_by(&self, secs: i64) {
        *self.now.lock().unwrap() += SignedDuration::from_secs(secs);
    }
}

impl Clock for Still {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap()
    }

    fn sleep(&self, pause: Duration) -> Pause {
        self.record.pauses.lock().unwrap().push(pause);
        *self.now.lock().unwrap() += pause;
        Box::pin(std::future::ready(()))
    }
}

/// The simulated world's time.
pub(crate) struct WorldTime(Arc<Mutex<Fakes>>, Arc<Record>);

impl std::fmt::Debug for WorldTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorldTime")
    }
}

impl Clock for WorldTime {
    fn now(&self) -> Timestamp {
        self.0.lock().unwrap().now()
    }

    fn sleep(&self, pause: Duration) -> Pause {
        self.1.pauses.lock().unwrap().push(pause);
        self.0.lock().unwrap().advance(SignedDuration::try_from(pause).unwrap());
        Box::pin(std::future::ready(()))
    }
}

/// Records what passes.
pub(crate) fn recorded<F>(record: &Arc<Record>, answer: F) -> Transport
where
    F: Fn(Request<Bytes>) -> Result<Response<Bytes>, BoxError> + Send + Sync + 'static,
{
    let record = Arc::clone(record);
    let answer = Arc::new(answer);
    Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
        record.seen.lock().unwrap().push(Seen::of(&request));
        let answer = Arc::clone(&answer);
        async move { answer(request) }
    }))
}

/// A client before made-up answers.
pub(crate) struct Made {
    pub(crate) github: GitHub,
    pub(crate) record: Arc<Record>,
    pub(crate) clock: Arc<Still>,
}

/// A GitHub client that gets these answers.
pub(crate) fn made<F>(credentials: &Credentials, answer: F) -> Made
where
    F: Fn(Request<Bytes>) -> Result<Response<Bytes>, BoxError> + Send + Sync + 'static,
{
    let record = Arc::new(Record::default());
    let clock = Arc::new(Still { now: Mutex::new(tests::start()), record: Arc::clone(&record) });
    let transport = recorded(&record, answer);
    let github =
        GitHub::with_service(credentials, Settings::default(), transport, Arc::clone(&clock) as Arc<dyn Clock>);
    Made { github, record, clock }
}

/// An answer.
pub(crate) fn says(status: u16, body: &str) -> Response<Bytes> {
    Response::builder().status(status).body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

/// The clients before the simulated world.
pub(crate) struct Staged {
    pub(crate) world: Arc<Mutex<Fakes>>,
    pub(crate) github: GitHub,
    pub(crate) jenkins: Jenkins,
    pub(crate) record: Arc<Record>,
}

impl Staged {
    /// Does something with the world.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Fakes) -> T) -> T {
        act(&mut self.world.lock().unwrap())
    }

    /// Lets the world go on.
    pub(crate) fn minutes(&self, minutes: i64) {
        self.with(|world| world.advance(SignedDuration::from_mins(minutes)));
    }
}

/// The world, and clients that sign in as an App and with Jenkins' API token.
pub(crate) fn staged(settings: fakes::Settings) -> Staged {
    staged_as(settings, &app(), Settings::default())
}

pub(crate) fn staged_as(settings: fakes::Settings, credentials: &Credentials, of_client: Settings) -> Staged {
    let login = Login::Token { user: settings.jenkins_user.clone(), token: settings.jenkins_token.clone() };
    staged_with(settings, credentials, of_client, login)
}

pub(crate) fn staged_with(
    settings: fakes::Settings,
    credentials: &Credentials,
    of_client: Settings,
    login: Login,
) -> Staged {
    let jenkins_url: http::Uri = settings.jenkins_url.parse().unwrap();
    let world = Arc::new(Mutex::new(Fakes::new(7, settings)));
    let record = Arc::new(Record::default());
    let clock: Arc<dyn Clock> = Arc::new(WorldTime(Arc::clone(&world), Arc::clone(&record)));
    let there = Arc::clone(&world);
    let transport = recorded(&record, move |request| there.lock().unwrap().github(request).map_err(Into::into));
    let github = GitHub::with_service(credentials, of_client, transport, Arc::clone(&clock));
    let there = Arc::clone(&world);
    let transport = recorded(&record, move |request| there.lock().unwrap().jenkins(request).map_err(Into::into));
    let jenkins = Jenkins::with_service(login, jenkins::Settings::new(jenkins_url), transport, clock);
    Staged { world, github, jenkins, record }
}

/// An App with a key made for these tests.
pub(crate) fn app() -> Credentials {
    static APP: LazyLock<Credentials> = LazyLock::new(new_app);
    APP.clone()
}

fn new_app() -> Credentials {
    use aws_lc_rs::encoding::Pkcs8V1Der;
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    let key = KeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der: Pkcs8V1Der<'_> = key.as_der().expect("its bytes");
    let pem =
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", BASE64_STANDARD.encode(der.as_ref()));
    Credentials::app(4711, &pem).expect("an App")
}

/// Somebody's token, which the world knows.
pub(crate) fn token() -> Credentials {
    Credentials::token("world-token")
}
