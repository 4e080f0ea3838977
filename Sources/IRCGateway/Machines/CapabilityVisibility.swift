// The capabilities of the backend that clients see, and how the gateway changes them.

extension CapabilityNegotiation {
    /// The capabilities that are hidden from clients or changed.
    package struct Visibility: Sendable, Equatable {
        /// Hides `tls`. STARTTLS would bypass the gateway, unless this listener terminates TLS itself.
        package var hidesStartTLS = true
        /// Hides SASL EXTERNAL. The backend never sees the client's certificate.
        package var hidesExternal = true
        /// The port of the gateway's TLS listener for `sts`; nil hides `sts`.
        package var stsPort: Int?
        /// Under `hosted` and above: shows only capabilities that the gateway can translate.
        package var onlyTranslatable = false
        /// The limits of `draft/multiline`, which the gateway offers by itself; nil if it does not.
        package var multiline: MultilineLimits?

        package init() {}
    }

    /// Capabilities that the gateway can translate, shown to clients under `hosted` and above.
    package static let translatable: Set<String> = [
        "message-tags", "server-time", "batch", "labeled-response", "echo-message", "account-tag", "extended-join",
        "multi-prefix", "userhost-in-names", "cap-notify", "account-notify", "away-notify", "chghost", "invite-notify",
        "setname", "sasl", "tls", "sts", "standard-replies", "monitor", "extended-monitor", "no-implicit-names",
        "draft/no-implicit-names", "account-registration", "draft/account-registration", "utf8only",
    ]

    /// Names of the capability with which a server sends no list of names after a JOIN.
    static let noImplicitNames: Set<String> = ["no-implicit-names", "draft/no-implicit-names"]

    package func isVisible(_ name: String) -> Bool {
        // A sidecar knows the members of a room from that list, and withholds messages of others.
        if isCapable, Self.noImplicitNames.contains(name) { return false }
        if name == "tls" { return !visibility.hidesStartTLS }
        if name == "sts" { return visibility.stsPort != nil }
        return !visibility.onlyTranslatable || Self.translatable.contains(name)
    }

    /// A token of CAP LS as shown to clients; nil if it is hidden.
    package func visible(_ token: String) -> String? {
        let name = bareName(token)
        guard isVisible(name) else { return nil }
        if name == "sts", let port = visibility.stsPort {
            let others = value(token).split(separator: ",").filter { !$0.hasPrefix("port=") }.map(String.init)
            return "sts=" + (["port=\(port)"] + others).joined(separator: ",")
        }
        if name == "sasl", visibility.hidesExternal, token.contains("=") {
            let mechanisms = value(token).split(separator: ",").filter { $0.uppercased() != "EXTERNAL" }
            return mechanisms.isEmpty ? nil : "sasl=" + mechanisms.joined(separator: ",")
        }
        return token
    }
}
