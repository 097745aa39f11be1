//! The pages of a server, and its answers.

use std::borrow::Cow;

use crate::HttpRequest;

/// The status of an answer (RFC 9110, section 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpStatus {
    /// 200: the answer has the page.
    Found,
    /// 400: the request has no form that the server knows.
    BadRequest,
    /// 401: the client has not shown that it may see the page.
    Unauthorized,
    /// 404: there is no such page.
    NotFound,
    /// 405: the server answers `GET` and `HEAD` only.
    NotAllowed,
    /// 431: the head of the request is too long.
    TooLarge,
    /// 503: the daemon behind the pages does not answer.
    Unavailable,
}

impl HttpStatus {
    /// The number and the reason phrase.
    pub(crate) fn line(self) -> (u16, &'static str) {
        match self {
            Self::Found => (200, "OK"),
            Self::BadRequest => (400, "Bad Request"),
            Self::Unauthorized => (401, "Unauthorized"),
            Self::NotFound => (404, "Not Found"),
            Self::NotAllowed => (405, "Method Not Allowed"),
            Self::TooLarge => (431, "Request Header Fields Too Large"),
            Self::Unavailable => (503, "Service Unavailable"),
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status.
    pub status: HttpStatus,
    /// The media type of the body.
    pub kind: &'static str,
    /// The page.
    pub body: Cow<'static, [u8]>,
    /// More header fields. A value has no line ends.
    pub fields: Vec<(&'static str, String)>,
}

impl HttpResponse {
    /// A page.
    #[must_use]
    pub fn page(kind: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { status: HttpStatus::Found, kind, body: body.into(), fields: Vec::new() }
    }

    /// A sentence for a person, as plain text.
    #[must_use]
    pub fn text(status: HttpStatus, text: &str) -> Self {
        let body = format!("{text}\n").into_bytes().into();
        Self { status, kind: "text/plain; charset=utf-8", body, fields: Vec::new() }
    }

    /// The refusal of a request.
    #[must_use]
    pub fn refusal(status: HttpStatus) -> Self {
        Self::text(status, status.line().1)
    }

    /// The same with one more header field. A value with a line end is left out: it would begin a
    /// field of its own.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        if !value.contains(['\r', '\n']) {
            self.fields.push((name, value));
        }
        self
    }

    /// The bytes of the answer; only its head if the client wants no more.
    pub(crate) fn encode(&self, is_head: bool) -> Vec<u8> {
        let Self { status, kind, body, fields } = self;
        let (code, reason) = status.line();
        let length = body.len();
        let mut head = format!(
            "HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
        );
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if !is_head {
            bytes.extend(&**body);
        }
        bytes
    }
}

/// The pages of a server. The threads of connections ask for them at the same time.
pub trait Site: Send + Sync {
    /// Answers a request.
    fn answer(&self, request: &HttpRequest<'_>) -> HttpResponse;

    /// A connection was closed because too many clients were connected.
    fn note_refused(&self) {}
}
