//! The request's body: read once, bounded, seen by the extractors and by the fingerprint alike.

use actix_web::{
    HttpMessage, HttpRequest,
    dev::Payload,
    error::PayloadError,
    http::header,
    web::{self, Bytes},
};
use futures_util::{Stream, StreamExt};
use std::{
    cell::{Ref, RefCell},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// A body that is kept while it is read, up to a limit.
///
/// The extractors run first and pull what they need, so an unauthenticated caller is turned away
/// without its body having been read; what they leave is read afterwards.
#[derive(Clone)]
pub(crate) struct KeptBody(Rc<RefCell<Kept>>);

struct Kept {
    source: Payload,
    bytes: Vec<u8>,
    limit: usize,
    state: Progress,
}

#[derive(Clone, Copy, PartialEq)]
enum Progress {
    Reading,
    Finished,
    OverLimit,
}

/// Why a body could not be kept.
pub(crate) enum BodyError {
    TooLarge,
    Broken(PayloadError),
}

impl KeptBody {
    pub(crate) fn new(request: &HttpRequest, payload: web::Payload, limit: usize) -> KeptBody {
        let announced = request
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse::<u64>().ok())
            .unwrap_or(0);
        let over = announced > limit as u64 && !request.chunked().unwrap_or(false);
        KeptBody(Rc::new(RefCell::new(Kept {
            source: payload.into_inner(),
            bytes: Vec::new(),
            limit,
            state: if over {
                Progress::OverLimit
            } else {
                Progress::Reading
            },
        })))
    }

    /// The body from its beginning, for an extractor.
    pub(crate) fn payload(&self) -> Payload {
        let reader = Reader {
            body: self.clone(),
            position: 0,
        };
        Payload::from(Box::pin(reader) as Pin<Box<dyn Stream<Item = _>>>)
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        self.0.borrow().state == Progress::OverLimit
    }

    /// Reads what the extractors have left.
    pub(crate) async fn finish(&self) -> Result<(), BodyError> {
        loop {
            match std::future::poll_fn(|cx| self.0.borrow_mut().poll_more(cx)).await {
                None => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(_)) if self.is_over_limit() => return Err(BodyError::TooLarge),
                Some(Err(error)) => return Err(BodyError::Broken(error)),
            }
        }
    }
}

impl KeptBody {
    /// What has been read so far.
    pub(crate) fn bytes(&self) -> Ref<'_, [u8]> {
        Ref::map(self.0.borrow(), |kept| kept.bytes.as_slice())
    }
}

impl Kept {
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, PayloadError>>> {
        match self.state {
            Progress::Reading => {}
            Progress::Finished => return Poll::Ready(None),
            Progress::OverLimit => return Poll::Ready(Some(Err(PayloadError::Overflow))),
        }
        Poll::Ready(match ready!(self.source.poll_next_unpin(cx)) {
            None => {
                self.state = Progress::Finished;
                None
            }
            Some(Ok(chunk)) if self.bytes.len() + chunk.len() > self.limit => {
                self.state = Progress::OverLimit;
                self.bytes = Vec::new();
                Some(Err(PayloadError::Overflow))
            }
            Some(Ok(chunk)) => {
                self.bytes.extend_from_slice(&chunk);
                Some(Ok(chunk))
            }
            Some(Err(error)) => Some(Err(error)),
        })
    }
}

/// One reader of a kept body.
struct Reader {
    body: KeptBody,
    position: usize,
}

impl Stream for Reader {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = {
            let mut kept = self.body.0.borrow_mut();
            match kept.bytes.get(self.position..) {
                Some(unread) if !unread.is_empty() => Some(Ok(Bytes::copy_from_slice(unread))),
                _ => ready!(kept.poll_more(cx)),
            }
        };
        if let Some(Ok(chunk)) = &item {
            self.position += chunk.len();
        }
        Poll::Ready(item)
    }
}
