//! The head of a request, as far as a server of pages needs it.

use crate::HttpStatus;

/// A longer head is refused.
pub(crate) const HEAD_BYTES_MAX: usize = 8 << 10;
/// A head with more fields is refused.
const FIELDS_MAX: usize = 64;

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest<'a> {
    /// The path of the page, without the query.
    pub path: &'a str,
    /// The query behind the path, without its question mark; empty if there is none.
    pub query: &'a str,
    /// The client wants only the head of the answer.
    pub is_head: bool,
    fields: Vec<(&'a str, &'a [u8])>,
}

impl<'a> HttpRequest<'a> {
    /// Reads a request from the bytes so far. `None` if more must arrive.
    ///
    /// # Errors
    /// The status of the refusal.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, HttpStatus> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(HttpStatus::TooLarge);
            }
            Err(_) => return Err(HttpStatus::BadRequest),
        }
        let is_head = match request.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Err(HttpStatus::NotAllowed),
        };
        let target = request.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let fields = request.headers.iter().map(|field| (field.name, field.value)).collect();
        Ok(Some(Self { path, query, is_head, fields }))
    }

    /// The values of a header field, in order.
    pub fn fields<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'a [u8]> + 'b {
        let named = self.fields.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| *value)
    }

    /// The value of a parameter of the query, as it was sent: without decoding.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        let parameters = self.query.split('&').filter_map(|parameter| parameter.split_once('='));
        parameters.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}
