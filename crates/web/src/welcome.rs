//! The text in the terminal once the server has started.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

use crate::address::Address;
use crate::tokens::Tokens;

/// The links, and a QR code of the one with the most access.
pub(crate) fn text(address: &Address, tokens: &Tokens, is_read_only: bool) -> String {
    let base = address.base();
    let link = |token: &str| format!("{base}/?token={token}");
    let (full, read_only) = (link(&tokens.full), link(&tokens.read_only));
    let (links, best) = match is_read_only {
        true => (format!("  read-only    {read_only}\n"), &read_only),
        false => (format!("  full access  {full}\n  read-only    {read_only}\n"), &full),
    };
    let code = qr_code(best).unwrap_or_default();
    format!(
        "Open one of these links. Each one is a password: keep it to yourself.\n\n{links}\n{code}\nStop the server with Ctrl+C. That ends no run.\n"
    )
}

/// Dark on light, whatever the colours of the terminal: two modules per character.
fn qr_code(link: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(link, EcLevel::L).ok()?;
    let image = code
        .render::<Dense1x2>()
        .dark_color(Dense1x2::Light)
        .light_color(Dense1x2::Dark)
        .quiet_zone(true)
        .build();
    Some(image + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_server_prints_no_full_link() {
        let address = Address::new("127.0.0.1:4747".parse().unwrap(), None);
        let tokens = Tokens { full: "F".repeat(43), read_only: "R".repeat(43) };
        let both = text(&address, &tokens, false);
        assert!(both.contains(&format!("http://127.0.0.1:4747/?token={}", tokens.full)), "{both}");
        assert!(both.contains(&tokens.read_only) && both.contains('█'), "{both}");
        let one = text(&address, &tokens, true);
        assert!(one.contains(&tokens.read_only) && !one.contains(&tokens.full), "{one}");
    }
}
