// What a client has said before the backend accepted it.

/// Facts of a registration in progress.
package struct RegistrationTracker: Sendable {
    /// WHOIS commands of the client that the backend has not finished answering, by folded nick.
    var clientWhois: [String: Int] = [:]

    package init() {}
}
