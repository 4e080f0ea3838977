// Clients that can encrypt: how the gateway recognises them, and their calls of the control plane.

import Envelope
import HTTPCodec
import NIOCore
import Protection
import Vault

extension HTTPExchange {
    /// The WebSocket subprotocol by which a client announces that it can encrypt.
    ///
    /// The client offers it beside the backend's own. The gateway removes it from requests whose answer it reads.
    package static let subprotocol = "pawl.v1"

    /// The device that the request's credential has proven; nil if none.
    var provenDevice: DeviceID? {
        guard let account, let credential else { return nil }
        return environment.devices.device(of: account, by: credential.digest, in: environment.directory)
    }

    /// Whether the client announces that it can encrypt. This is not verified.
    var asksForEncryption: Bool {
        isUpgrade && head.headers.tokens("Sec-WebSocket-Protocol").contains(Self.subprotocol)
    }

    /// Records the account and its software as behind the gateway.
    func noteEvidence(asked: Bool, _ now: Timestamp, _ actions: inout [ExchangeAction]) {
        // An application service receives its users' messages past the gateway, so these users are outsiders.
        guard let account, credential?.acting == nil else { return }
        let software = head.headers.first("User-Agent")
        if let row = environment.accounts.note(account, software: software, asked: asked, now: now) {
            actions.append(.submit(.record([row])))
        }
    }

    // MARK: Calls

    /// Begins a request for the gateway itself, which never reaches the backend.
    mutating func beginCall(_ now: Timestamp, _ actions: inout [ExchangeAction]) {
        isCall = true
        isUpgrade = false
        if let crossOrigin = mapping.crossOrigin, head.isPreflight,
            head.headers.first("Access-Control-Request-Method") != nil
        {
            let answer = crossOrigin.preflight(for: head.headers, credentials: mapping.account.credentials)
            return respond(answer, ByteBuffer(), &actions)
        }
        identify(now, &actions)
    }

    mutating func collectCall(_ actions: inout [ExchangeAction]) {
        stage = .requestBody
        actions.append(.collectRequest(limit: ControlCall.bodyLimit))
    }

    mutating func carryOutCall(_ body: ByteBuffer, _ now: Timestamp, _ actions: inout [ExchangeAction]) {
        guard let account, let credential else { return }
        var call = ControlCall(
            environment: environment, connection: connection, account: account, credential: credential.digest)
        switch call.begin(head.method, head.target[...], body, now) {
        case .answer(let answer): answerCall(answer, &actions)
        case .submit(let job):
            stage = .call
            self.call = call
            actions.append(.submit(job))
        }
    }

    mutating func answerCall(_ answer: ControlAnswer, _ actions: inout [ExchangeAction]) {
        let (head, body) = answer.response
        respondItself(head, body, &actions)
    }
}

extension HeaderFields {
    /// Removes a subprotocol that is meant for the gateway only.
    mutating func removeSubprotocol(_ name: String) {
        let others = self["Sec-WebSocket-Protocol"].flatMap { $0.split(separator: ",") }
            .map { $0.trimmingSpaces }.filter { $0.lowercased() != name }
        if others.isEmpty {
            remove("Sec-WebSocket-Protocol")
        } else {
            set("Sec-WebSocket-Protocol", to: others.joined(separator: ", "))
        }
    }
}

extension Substring {
    fileprivate var trimmingSpaces: String {
        var text = drop { $0 == " " || $0 == "\t" }
        while let last = text.last, last == " " || last == "\t" { text.removeLast() }
        return String(text)
    }
}
