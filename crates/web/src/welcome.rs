//! The text in the terminal once the server has started.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

use crate::address::Address;
use crate::server::ServeOptions;
use crate::tokens::Tokens;

const PHONE_HINT: &str = "Only this machine can open them. For a phone: ralph serve --url, see docs/src/how-to/browser.md\n";

/// The links. Before them, where they do not scroll away, a QR code of the one with the most access.
pub(crate) fn text(address: &Address, tokens: &Tokens, options: &ServeOptions) -> String {
    let base = address.base();
    let link = |token: &str| format!("{base}/?token={token}");
    let (full, read_only) = (link(&tokens.full), link(&tokens.read_only));
    let (links, best, access) = match options.is_read_only {
        true => (format!("  read-only    {read_only}\n"), &read_only, "read-only"),
        false => (format!("  full access  {full}\n  read-only    {read_only}\n"), &full, "full"),
    };
    let code = qr_code(best).filter(|_| address.is_reachable());
    let code = code.map(|code| format!("{code}The code opens the link with {access} access.\n\n"));
    let phone = match (&code, address.is_unspecified()) {
        (Some(_), _) => "",
        (None, true) => "Put a name or address of this machine into the link.\n",
        (None, false) => PHONE_HINT,
    };
    let end = if options.is_demo { "That ends the demo's runs, too." } else { "That ends no run." };
    let code = code.unwrap_or_default();
    format!(
        "{code}Open one of these links. Each one is a password: keep it to yourself.\n\n{links}\n{phone}Stop the server with Ctrl+C. {end}\n"
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
    use crate::address::PublicUrl;

    fn welcome(listen: &str, url: Option<&str>, is_read_only: bool) -> String {
        let options = ServeOptions {
            home: "/home".into(),
            listen: listen.parse().unwrap(),
            url: url.map(|url| PublicUrl::parse(url).unwrap()),
            is_read_only,
            agents: Vec::new(),
            renew_tokens: false,
            is_demo: false,
            zone: jiff::tz::TimeZone::UTC,
            clock: || 0,
        };
        let tokens = Tokens { full: "F".repeat(43), read_only: "R".repeat(43) };
        text(&Address::new(options.listen, options.url.clone()), &tokens, &options)
    }

    #[test]
    fn read_only_server_prints_no_full_link() {
        let both = welcome("127.0.0.1:4747", None, false);
        assert!(
            both.contains("http://127.0.0.1:4747/?token=FFF") && both.contains("RRR"),
            "{both}"
        );
        let one = welcome("127.0.0.1:4747", None, true);
        assert!(one.contains("RRR") && !one.contains("FFF"), "{one}");
    }

    #[test]
    fn code_is_for_links_that_a_phone_can_open_and_comes_before_them() {
        for listen in ["127.0.0.1:4747", "[::1]:4747"] {
            let local = welcome(listen, None, false);
            assert!(!local.contains('█') && local.contains(PHONE_HINT), "{local}");
        }
        for all in ["0.0.0.0:4747", "[::]:4747"] {
            let text = welcome(all, None, false);
            assert!(!text.contains('█') && text.contains("address of this machine"), "{text}");
        }
        for (listen, url) in
            [("192.168.1.5:4747", None), ("127.0.0.1:4747", Some("https://box.example.ts.net"))]
        {
            let text = welcome(listen, url, false);
            assert!(text.find('█') < text.find("token=") && text.contains('█'), "{text}");
            assert!(text.contains("opens the link with full access"), "{text}");
            assert!(welcome(listen, url, true).contains("opens the link with read-only access"));
        }
    }
}
