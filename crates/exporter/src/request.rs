//! The head of a request, as far as a server for scrapers needs it.

use crate::TextForm;

/// A longer head is refused.
pub(crate) const HEAD_BYTES_MAX: usize = 8 << 10;
/// A head with more fields is refused.
const FIELDS_MAX: usize = 64;

/// The wish of a scraper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The page of metrics.
    Metrics(TextForm),
    /// Whether the daemon answers.
    Health,
    /// The links to the other two.
    Index,
}

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScrapeRequest {
    pub(crate) wish: Wish,
    /// The scraper wants only the head of the answer.
    pub(crate) is_head: bool,
}

/// A status of HTTP.
pub(crate) type Status = (u16, &'static str);

pub(crate) const BAD_REQUEST: Status = (400, "Bad Request");
pub(crate) const NOT_FOUND: Status = (404, "Not Found");
pub(crate) const NOT_ALLOWED: Status = (405, "Method Not Allowed");
pub(crate) const TOO_LARGE: Status = (431, "Request Header Fields Too Large");

/// Reads a request from the bytes so far. `None` if more must arrive.
///
/// # Errors
/// The status of the refusal.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<ScrapeRequest>, Status> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(TOO_LARGE);
        }
        Err(_) => return Err(BAD_REQUEST),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(NOT_ALLOWED),
    };
    let path = request.path.unwrap_or_default();
    let wish = match path.split('?').next().unwrap_or_default() {
        "/metrics" => Wish::Metrics(form(request.headers)),
        "/healthz" => Wish::Health,
        "/" => Wish::Index,
        _ => return Err(NOT_FOUND),
    };
    Ok(Some(ScrapeRequest { wish, is_head }))
}

/// The form of the page: OpenMetrics, unless the scraper wants plain text only.
fn form(fields: &[httparse::Header<'_>]) -> TextForm {
    let mut accepted = fields.iter().filter(|field| field.name.eq_ignore_ascii_case("accept"));
    let wants = |field: &httparse::Header<'_>, kind: &str| {
        String::from_utf8_lossy(field.value).to_ascii_lowercase().contains(kind)
    };
    let is_plain = accepted
        .any(|field| wants(field, "text/plain") && !wants(field, "application/openmetrics-text"));
    if is_plain { TextForm::Prometheus } else { TextForm::OpenMetrics }
}
