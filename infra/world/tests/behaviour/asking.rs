//! Asking the surfaces, as a client would.

use bytes::Bytes;
use http::{Request, Response};
use serde_json::Value;
use world::{Silence, World};

/// What came back.
pub(crate) struct Got {
    pub(crate) code: u16,
    pub(crate) json: Value,
    pub(crate) text: String,
    response: Response<Bytes>,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).map(|value| value.to_str().unwrap())
    }
}

fn got(response: Response<Bytes>) -> Got {
    let text = String::from_utf8(response.body().to_vec()).unwrap();
    let json = serde_json::from_str(&text).unwrap_or(Value::Null);
    Got { code: response.status().as_u16(), json, text, response }
}

/// A request to GitHub with headers.
pub(crate) fn try_github(
    world: &mut World,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<Got, Silence> {
    let mut request = Request::builder().method(method).uri(format!("https://api.github.com{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    world.github(request.body(body).unwrap()).map(got)
}

/// With a personal token.
pub(crate) fn ask(world: &mut World, method: &str, path: &str, body: Value) -> Got {
    try_github(world, method, path, &[("authorization", "Bearer world-token")], &body).unwrap()
}

/// As the App's installation.
pub(crate) fn ask_as_app(world: &mut World, method: &str, path: &str, body: Value) -> Got {
    let token = installation_token(world);
    try_github(world, method, path, &[("authorization", &format!("token {token}"))], &body).unwrap()
}

/// Something shaped like a JWT.
pub(crate) const JWT: &str = "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOjQ3MTEsImlhdCI6MSwiZXhwIjoyfQ.c2lnbmF0dXJl";

pub(crate) fn as_jwt(world: &mut World, method: &str, path: &str) -> Got {
    try_github(world, method, path, &[("authorization", JWT)], &Value::Null).unwrap()
}

fn installation_token(world: &mut World) -> String {
    as_jwt(world, "POST", "/app/installations/815/access_tokens").json["token"].as_str().unwrap().to_owned()
}

/// A GraphQL query with variables: the whole answer.
pub(crate) fn graphql(world: &mut World, query: &str, variables: Value) -> Got {
    ask(world, "POST", "/graphql", serde_json::json!({"query": query, "variables": variables}))
}

/// A request to Jenkins with headers.
pub(crate) fn try_jenkins(
    world: &mut World,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Got, Silence> {
    let mut request = Request::builder().method(method).uri(format!("https://jenkins.example{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    world.jenkins(request.body(Bytes::new()).unwrap()).map(got)
}

/// `suture:world-jenkins-token`, for Basic authentication.
pub(crate) const JENKINS: &str = "Basic c3V0dXJlOndvcmxkLWplbmtpbnMtdG9rZW4=";

/// With the API token.
pub(crate) fn ask_jenkins(world: &mut World, method: &str, path: &str) -> Got {
    try_jenkins(world, method, path, &[("authorization", JENKINS)]).unwrap()
}
