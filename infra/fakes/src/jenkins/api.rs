//! Jenkins' remote API, limited to the endpoints for starting and following builds.

use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};

use super::{FakeBuild, FakeJob};
use crate::audit::AuditedAction;
use crate::clock::later;
use crate::fakes::Fakes;
use crate::faults::Fault;
use crate::github::access::basic;
use crate::github::model::PrIx;
use crate::http_api::{ApiRequest, ApiResponse, NoResponse};

/// How long Jenkins remembers a queue item after it left the queue.
const ITEM_KEPT_MS: u64 = 300_000;
/// Parameters for Jenkins itself, which are not passed to the build.
const OWN_PARAMETERS: [&str; 4] = ["delay", "token", "cause", "json"];

impl Fakes {
    /// Handles a request to Jenkins, synchronously and at the fakes' time.
    /// [`NoResponse`] is what a client sees as a timeout or a reset connection.
    pub fn jenkins(&mut self, request: Request<Bytes>) -> Result<Response<Bytes>, NoResponse> {
        self.requests += 1;
        let request = ApiRequest::of(request);
        let fault = self.request_fault(&request, true);
        if fault == Some(Fault::JenkinsDown) {
            return Err(NoResponse { applied: false });
        }
        let answer = match self.jenkins_user(&request) {
            Err(refusal) => refusal,
            Ok(user) => self.route(&request, &user),
        };
        if fault == Some(Fault::AnswerLost) {
            return Err(NoResponse { applied: answer.code < 400 });
        }
        Ok(answer.with("x-jenkins", "2.516.1").into_response())
    }

    /// Authenticates a request. With a password, writes also need a crumb and its session; with an API token they do
    /// not.
    fn jenkins_user(&self, request: &ApiRequest) -> Result<String, ApiResponse> {
        let settings = &self.settings;
        let Some((user, secret)) = basic(request) else {
            return Err(ApiResponse::text(403, "Authentication required"));
        };
        if user != settings.jenkins_user || (secret != settings.jenkins_token && secret != settings.jenkins_password) {
            return Err(ApiResponse::text(401, "Invalid password/token for user"));
        }
        if secret == settings.jenkins_token || !request.is_write() {
            return Ok(user);
        }
        let session = request
            .header("cookie")
            .and_then(|cookie| cookie.split(';').find_map(|it| it.trim().strip_prefix("JSESSIONID=")));
        let crumb = session.and_then(|session| self.jenkins.sessions.get(session));
        match crumb.is_some_and(|crumb| request.header("jenkins-crumb") == Some(crumb)) {
            true => Ok(user),
            false => Err(ApiResponse::text(403, "No valid crumb was included in the request")),
        }
    }

    /// The job at the start of a path, and the rest of the path.
    pub(crate) fn job_of<'a>(&self, parts: &'a [&'a str]) -> Option<(FakeJob, &'a [&'a str])> {
        let ["job", owner, "job", name, rest @ ..] = parts else { return None };
        let repo = self.repo_ix(&format!("{owner}/{name}"))?;
        match rest {
            ["job", branch, rest @ ..] => {
                let pr = self.github.pull_at(repo, branch.strip_prefix("PR-")?.parse().ok()?)?;
                self.jenkins.known.contains(&pr).then_some((FakeJob { repo, pr: Some(pr) }, rest))
            }
            rest => Some((FakeJob { repo, pr: None }, rest)),
        }
    }

    fn route(&mut self, request: &ApiRequest, user: &str) -> ApiResponse {
        let parts: Vec<&str> = request.parts.iter().map(String::as_str).collect();
        let method = request.method.as_str();
        let answer = match (method, parts.as_slice()) {
            ("GET", ["crumbIssuer", "api", "json"]) => Some(self.new_crumb()),
            ("GET", ["queue", "api", "json"]) => {
                let items: Vec<Value> = self.jenkins.waiting.iter().filter_map(|id| self.item_json(*id)).collect();
                Some(ApiResponse::ok(&json!({"items": items})))
            }
            ("GET", ["queue", "item", id, "api", "json"]) => Some(
                id.parse()
                    .ok()
                    .and_then(|id| self.item_json(id))
                    .map_or_else(|| ApiResponse::text(404, "Not Found"), |it| ApiResponse::ok(&it)),
            ),
            (_, ["job", ..]) => match self.job_of(&parts) {
                None => Some(ApiResponse::text(404, "Not Found")),
                Some((FakeJob { repo: _, pr: Some(ix) }, rest)) => self.job_api(request, user, ix, rest),
                Some((FakeJob { repo, pr: None }, ["build"])) if method == "POST" => {
                    let name = self.github.repo(repo).settings.name.clone();
                    self.log(&format!("jenkins:{user}"), AuditedAction::RepositoryScanned, None, None, name);
                    self.scan(repo);
                    Some(ApiResponse::empty(302).with("location", "../"))
                }
                Some((FakeJob { repo, pr: None }, ["api", "json"])) if method == "GET" => {
                    let jobs = self.open_pulls[repo.0].iter().filter(|ix| self.jenkins.known.contains(ix));
                    let jobs: Vec<Value> = jobs.map(|ix| json!({"name": format!("PR-{}", self.github.pull(*ix).number), "url": self.job_url(*ix)})).collect();
                    Some(ApiResponse::ok(
                        &json!({"_class": "org.jenkinsci.plugins.workflow.multibranch.WorkflowMultiBranchProject", "jobs": jobs}),
                    ))
                }
                Some(_) => None,
            },
            _ => None,
        };
        answer.unwrap_or_else(|| {
            self.unknown_requests.push(format!("jenkins: {method} {}", request.path));
            ApiResponse::text(404, "Not Found")
        })
    }

    fn new_crumb(&mut self) -> ApiResponse {
        let (session, crumb) = (self.request_rng.hex(24), self.request_rng.hex(64));
        self.jenkins.sessions.insert(session.clone(), crumb.clone());
        let json = json!({"_class": "hudson.security.csrf.DefaultCrumbIssuer", "crumb": crumb, "crumbRequestField": "Jenkins-Crumb"});
        ApiResponse::ok(&json).with("set-cookie", format!("JSESSIONID={session}; Path=/; HttpOnly"))
    }

    fn job_api(&mut self, request: &ApiRequest, user: &str, ix: PrIx, rest: &[&str]) -> Option<ApiResponse> {
        match (request.method.as_str(), rest) {
            ("POST", ["build" | "buildWithParameters"]) => {
                if !self.github.pull(ix).is_open() {
                    return Some(ApiResponse::text(409, "PR is not buildable"));
                }
                let own = |(key, _): &(String, String)| !OWN_PARAMETERS.contains(&key.as_str());
                let parameters = if rest == ["buildWithParameters"] {
                    request.form().into_iter().filter(own).collect()
                } else {
                    Vec::new()
                };
                Some(self.queued_by(user, ix, parameters))
            }
            ("GET", ["api", "json"]) => Some(ApiResponse::ok(&self.job_json(ix))),
            (_, [number, rest @ ..]) => {
                let places = self.jenkins.builds_of.get(&ix).map_or(&[][..], Vec::as_slice);
                let number = number.parse::<usize>().ok();
                let place = number.and_then(|number| places.get(number.checked_sub(1)?).copied());
                match place {
                    None => Some(ApiResponse::text(404, "Not Found")),
                    Some(place) => self.build_api(request, user, place, rest),
                }
            }
            _ => None,
        }
    }

    fn queued_by(&mut self, user: &str, ix: PrIx, parameters: Vec<(String, String)>) -> ApiResponse {
        let (id, new) = self.queue_build(ix, parameters);
        if new {
            self.log_jenkins(user, AuditedAction::BuildQueued, ix, format!("item {id}"));
        }
        ApiResponse::empty(201).with("location", format!("{}/queue/item/{id}/", self.settings.jenkins_url))
    }

    fn build_api(&mut self, request: &ApiRequest, user: &str, place: usize, rest: &[&str]) -> Option<ApiResponse> {
        let build = self.jenkins.builds[place].clone();
        Some(match (request.method.as_str(), rest) {
            ("GET", ["logText", "progressiveText"]) => {
                let log = self.log_of(&build);
                let start = request.param("start").and_then(|it| it.parse::<usize>().ok()).unwrap_or(0);
                // Like Jenkins: an offset past the end restarts at 0.
                let start = if start > log.len() { 0 } else { start };
                let answer = ApiResponse::text(200, log.get(start..).unwrap_or_default())
                    .with("x-text-size", log.len().to_string());
                if build.result.is_none() { answer.with("x-more-data", "true") } else { answer }
            }
            ("POST", ["stop"]) => {
                if self.stop_build(place) {
                    self.log_jenkins(user, AuditedAction::BuildStopped, build.pr, format!("build {}", build.number));
                }
                ApiResponse::empty(302).with("location", self.job_url(build.pr))
            }
            ("POST", ["replay", "rebuild"]) => {
                if !self.github.pull(build.pr).is_open() {
                    return Some(ApiResponse::text(409, "not buildable"));
                }
                self.queued_by(user, build.pr, build.parameters.clone());
                ApiResponse::empty(302).with("location", self.job_url(build.pr))
            }
            _ => return None,
        })
    }

    fn item_json(&self, id: u64) -> Option<Value> {
        let item = self.jenkins.queue.get(&id)?;
        if item.left.is_some_and(|(_, at)| later(at, ITEM_KEPT_MS) < self.now()) {
            return None;
        }
        let executable = item.left.map(|(place, _)| {
            let number = self.jenkins.builds[place].number;
            json!({"_class": "org.jenkinsci.plugins.workflow.job.WorkflowRun", "number": number, "url": format!("{}{number}/", self.job_url(item.pr))})
        });
        let class = if executable.is_some() { "hudson.model.Queue$LeftItem" } else { "hudson.model.Queue$WaitingItem" };
        Some(json!({
            "_class": class, "id": id, "cancelled": item.cancelled, "executable": executable,
            "why": executable.is_none().then_some("Waiting for next available executor"), "blocked": false,
            "buildable": executable.is_none(), "inQueueSince": item.queued_at.as_millisecond(), "stuck": false,
            "task": {"name": format!("PR-{}", self.github.pull(item.pr).number), "url": self.job_url(item.pr)},
            "url": format!("queue/item/{id}/"), "actions": [parameters_json(&item.parameters)],
        }))
    }

    fn job_json(&self, ix: PrIx) -> Value {
        let places = self.jenkins.builds_of.get(&ix).map_or(&[][..], Vec::as_slice);
        let builds: Vec<Value> =
            places.iter().rev().map(|place| self.build_json(&self.jenkins.builds[*place])).collect();
        let item = self.waiting_item(ix);
        json!({
            "_class": "org.jenkinsci.plugins.workflow.job.WorkflowJob", "name": format!("PR-{}", self.github.pull(ix).number),
            "url": self.job_url(ix), "buildable": self.github.pull(ix).is_open(), "inQueue": item.is_some(),
            "queueItem": item.and_then(|id| self.item_json(id)), "lastBuild": builds.first(), "builds": builds,
            "nextBuildNumber": places.len() + 1,
        })
    }

    fn build_json(&self, build: &FakeBuild) -> Value {
        let duration = build.ended_at.map_or(0, |at| at.as_millisecond() - build.started_at.as_millisecond());
        json!({
            "_class": "org.jenkinsci.plugins.workflow.job.WorkflowRun", "number": build.number, "id": build.number.to_string(),
            "url": format!("{}{}/", self.job_url(build.pr), build.number), "queueId": build.queue_id,
            "building": build.result.is_none(), "inProgress": build.result.is_none(), "result": build.result.map(super::BuildResult::name),
            "timestamp": build.started_at.as_millisecond(), "duration": duration, "estimatedDuration": 400_000,
            "fullDisplayName": format!("{} #{}", self.job_name(build.pr), build.number),
            "actions": [
                parameters_json(&build.parameters),
                {"_class": "hudson.plugins.git.util.BuildData", "lastBuiltRevision": {"SHA1": build.sha, "branch": [{"SHA1": build.sha, "name": "detached"}]}, "remoteUrls": []},
                {},
            ],
        })
    }
}

fn parameters_json(parameters: &[(String, String)]) -> Value {
    if parameters.is_empty() {
        return json!({});
    }
    let list: Vec<Value> = parameters.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({"_class": "hudson.model.ParametersAction", "parameters": list})
}
