//! Files that are part of the program.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $kind:literal) => {
        Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!("../assets/", $name)) }
    };
}

static ASSETS: [Asset; 7] = [
    asset!("style.css", "text/css; charset=utf-8"),
    asset!("app.js", "text/javascript; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    asset!("icon-180.png", "image/png"),
    asset!("icon-192.png", "image/png"),
    asset!("icon-512.png", "image/png"),
    asset!("manifest.webmanifest", "application/manifest+json"),
];

/// The address of a file. It changes with the content, so that browsers may keep it.
pub(crate) fn path_of(name: &str) -> String {
    let bytes = ASSETS.iter().find(|asset| asset.name == name).map_or(&[][..], |asset| asset.bytes);
    format!("/assets/{name}?v={:08x}", checksum(bytes))
}

/// FNV-1a.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

pub(crate) async fn serve(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(Asset { kind, bytes, .. }) => {
            let headers =
                [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "private, max-age=86400")];
            (headers, *bytes).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
