// Logins inside a WebSocket. The backend names the account of the credential, as for any request. Until then nothing may
// pass that could be a message, and the relay reads no further message while the backend is asked, so the order stays.

import HTTPCodec
import JSONCodec
import Protection
import Reports

extension WebSocketMachine {
    /// The account of a socket whose account is unknown, in counts.
    static let unknownAccount = AccountID(text: "(not logged in)")

    /// Whether the account of the socket is unknown, and something is protected.
    var isGated: Bool { (!isLoggedIn || isIdentifying) && environment.isProtecting }

    /// Handles a message that carries a login.
    ///
    /// - Returns: false if the gateway cannot read it, so that the backend could find another login in it.
    mutating func logIn(
        _ login: FrameLogin, _ document: JSONDocument, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) -> Bool {
        // The relay delivers no message meanwhile.
        guard !isIdentifying else { return false }
        let source = environment.mapping.account
        switch login.credential(in: document, at: source.credentials) {
        case .absent: return true
        case .unreadable: return false
        case .found(let credential):
            if isLoggedIn, credential.digest == self.credential?.digest { return true }
            let owner = environment.credentials.owner(
                of: credential.digest, now: now.monotonic, within: CredentialCache.memoryForWrites)
            guard owner == .unknown else {
                settleLogin(owner, credential, now, &actions)
                return true
            }
            identifying = credential
            var lookup = credential.question(to: source)
            lookup.id = .login
            actions.append(.look(lookup))
            return true
        }
    }

    /// Takes the backend's answer about a login.
    mutating func loginAnswered(
        _ owner: CredentialCache.Owner, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        guard let credential = identifying else { return unexpected("login", &actions) }
        identifying = nil
        environment.credentials.remember(owner, of: credential.digest, now: now.monotonic)
        settleLogin(owner, credential, now, &actions)
    }

    private mutating func settleLogin(
        _ owner: CredentialCache.Owner, _ credential: Credential, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        guard case .account(let name) = owner else {
            // The backend answers the client. It may still have taken the login, so a socket of an account ends.
            if isLoggedIn {
                actions.append(.close(code: 1008, reason: "The new login is not confirmed. Open a new WebSocket."))
            }
            return
        }
        guard !isLoggedIn || name == account else {
            return actions.append(
                .close(code: 1008, reason: "This WebSocket belongs to another account. Open a new one."))
        }
        if !isLoggedIn {
            account = name
            passing.forget()
            let asks = asksForEncryption || environment.isCapable(name)
            if let row = environment.accounts.note(name, software: software, asked: asks, now: now) {
                actions.append(.submit(.record([row])))
            }
        }
        isLoggedIn = true
        self.credential = credential
        actions.append(.loggedIn(name, credential))
    }
}
