//! Requests to both APIs, as a client sends them.

use bytes::Bytes;
use fakes::{Fakes, NoResponse};
use http::{Request, Response};
use serde_json::Value;

/// A response of either API.
pub(crate) struct ClientResponse {
    pub(crate) code: u16,
    pub(crate) json: Value,
    pub(crate) text: String,
    response: Response<Bytes>,
}

impl ClientResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).map(|value| value.to_str().unwrap())
    }
}

fn read_response(response: Response<Bytes>) -> ClientResponse {
    let text = String::from_utf8(response.body().to_vec()).unwrap();
    let json = serde_json::from_str(&text).unwrap_or(Value::Null);
    ClientResponse { code: response.status().as_u16(), json, text, response }
}

/// A request to GitHub with headers.
pub(crate) fn try_github(
    fakes: &mut Fakes,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<ClientResponse, NoResponse> {
    let mut request = Request::builder().method(method).uri(format!("https://api.github.com{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    fakes.github(request.body(body).unwrap()).map(read_response)
}

/// A request to GitHub with a personal token.
pub(crate) fn ask(fakes: &mut Fakes, method: &str, path: &str, body: Value) -> ClientResponse {
    try_github(fakes, method, path, &[("authorization", "Bearer world-token")], &body).unwrap()
}

/// A request to GitHub as the App's installation.
pub(crate) fn ask_as_app(fakes: &mut Fakes, method: &str, path: &str, body: Value) -> ClientResponse {
    let token = installation_token(fakes);
    try_github(fakes, method, path, &[("authorization", &format!("token {token}"))], &body).unwrap()
}

/// A token in the shape of a JWT.
pub(crate) const JWT: &str = "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOjQ3MTEsImlhdCI6MSwiZXhwIjoyfQ.c2lnbmF0dXJl";

pub(crate) fn as_jwt(fakes: &mut Fakes, method: &str, path: &str) -> ClientResponse {
    try_github(fakes, method, path, &[("authorization", JWT)], &Value::Null).unwrap()
}

fn installation_token(fakes: &mut Fakes) -> String {
    as_jwt(fakes, "POST", "/app/installations/815/access_tokens").json["token"].as_str().unwrap().to_owned()
}

/// A GraphQL query with variables; returns the whole response.
pub(crate) fn graphql(fakes: &mut Fakes, query: &str, variables: Value) -> ClientResponse {
    ask(fakes, "POST", "/graphql", serde_json::json!({"query": query, "variables": variables}))
}

/// A request to Jenkins with headers.
pub(crate) fn try_jenkins(
    fakes: &mut Fakes,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<ClientResponse, NoResponse> {
    let mut request = Request::builder().method(method).uri(format!("https://jenkins.example{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    fakes.jenkins(request.body(Bytes::new()).unwrap()).map(read_response)
}

/// `suture:world-jenkins-token`, for Basic authentication.
pub(crate) const JENKINS: &str = "Basic c3V0dXJlOndvcmxkLWplbmtpbnMtdG9rZW4=";

/// A request to Jenkins with the API token.
pub(crate) fn ask_jenkins(fakes: &mut Fakes, method: &str, path: &str) -> ClientResponse {
    try_jenkins(fakes, method, path, &[("authorization", JENKINS)]).unwrap()
}
