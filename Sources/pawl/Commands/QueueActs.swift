// Commands that act on the requests for the backend. Each is audited.

import ArgumentParser
import Foundation
import Outbox
import Reports
import RequestQueue
import StorePort

/// The requests or the account to hold or release.
struct ScopeOptions: ParsableArguments {
    @Argument(help: "Ids, from pawl queue list.") var ids: [UInt64] = []
    @Option(help: "All requests of this account: a services account, or the nick of a connected person without one.")
    var account: String?

    func validate() throws {
        guard ids.isEmpty != (account == nil) else { throw ValidationError("Name requests, or one --account.") }
    }

    func scopes(_ gateway: Gateway) -> [RequestScope] {
        account.map { [.account(gateway.account(named: $0))] } ?? ids.map { .request($0) }
    }
}

extension QueueCommand {
    struct Outcome: Codable {
        /// The id, or the account.
        var subject: String
        var done: Bool
        /// Of the refusal; nil if it was done.
        var code: String?
        var text: String

        init(subject: String, done text: String) {
            (self.subject, self.text, done, code) = (subject, text, true, nil)
        }

        init(subject: String, refused text: String, code: String) {
            (self.subject, self.text, done, self.code) = (subject, text, false, code)
        }

        init(subject: String, _ refusal: ActRefusal) {
            self.init(subject: subject, refused: refusal.text, code: refusal.code)
        }
    }

    /// Returns outcomes as an answer. The exit code is 1 if one of the acts was refused.
    static func answer(_ outcomes: [Outcome], json: Bool) throws -> AdminAnswer {
        var answer = AdminAnswer.text("")
        if json {
            answer = try .json(outcomes)
        } else {
            answer.out = outcomes.filter(\.done).map(\.text).joined(separator: "\n")
        }
        let failures = outcomes.filter { !$0.done }
        if !failures.isEmpty {
            answer.exit = ExitStatus.failed
            answer.error = failures.map(\.text).joined(separator: "\n")
            answer.code = failures[0].code
        }
        return answer
    }

    static func carryOut(
        _ kind: RequestAct.Kind, _ subject: String, _ done: String, on gateway: Gateway
    ) async throws -> Outcome {
        if let refusal = try await gateway.carryOut(kind) { return Outcome(subject: subject, refusal) }
        return Outcome(subject: subject, done: done)
    }

    /// `pawl queue hold`
    struct Hold: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Keep waiting requests from being sent until they are released.",
            discussion: """
                Later messages of its sender to the same name wait behind a held request, so that the order is kept. A \
                hold survives restarts and stops the clock of limits.request_age. The hold of someone who is not logged in \
                ends with their connection.
                """)
        @OptionGroup var scope: ScopeOptions
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            var outcomes: [Outcome] = []
            for scope in scope.scopes(gateway) {
                let name = gateway.displayName(scope)
                outcomes.append(
                    try await QueueCommand.carryOut(
                        .hold(scope), name,
                        "\(name) is held." + gateway.hint(scope)
                            + " To release it: pawl queue release \(scope.words(gateway))",
                        on: gateway))
            }
            return try QueueCommand.answer(outcomes, json: common.json)
        }
    }

    /// `pawl queue release`
    struct Release: AdminCommand {
        static let configuration = CommandConfiguration(abstract: "Release held requests. They are sent in order.")
        @OptionGroup var scope: ScopeOptions
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            var outcomes: [Outcome] = []
            for scope in scope.scopes(gateway) {
                let name = gateway.displayName(scope)
                outcomes.append(
                    try await QueueCommand.carryOut(.release(scope), name, "\(name) is released.", on: gateway))
            }
            return try QueueCommand.answer(outcomes, json: common.json)
        }
    }

    /// `pawl queue drop`
    struct Drop: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Drop waiting requests for good. Their senders are notified; the act is audited.",
            discussion: """
                A request that has been sent over IRC and waits for the backend's answer cannot be dropped. Over HTTP it can, \
                for example if the backend does not answer: the gateway stops waiting, and the backend may have carried it out.
                """)
        @Argument(help: "Ids, from pawl queue list.") var ids: [UInt64]
        @Option(help: "The token that the gateway gave for this.") var confirm: String?
        @Flag(help: "Do it without asking.") var yes = false
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            var gone: [Outcome] = []
            for id in ids {
                guard let refusal = try gateway.front.whyNotDropped(id) else { continue }
                gone.append(Outcome(subject: "\(id)", refusal))
            }
            guard gone.isEmpty else { return try QueueCommand.answer(gone, json: common.json) }
            let names = ids.map { "\($0)" }.joined(separator: " ")
            let words = "drop \(names)"
            let sent = try ids.filter(gateway.isUnderWay)
            guard yes || gateway.confirmations.accept(confirm, for: words) else {
                return gateway.question(
                    "This drops \(ids.count == 1 ? "request \(names)" : "\(ids.count) requests") for good: "
                        + "never sent, and the text cannot be recovered."
                        + (sent.isEmpty
                            ? ""
                            : " The backend may already have done \(sent.map { "\($0)" }.joined(separator: " "))."),
                    words)
            }
            var outcomes: [Outcome] = []
            for id in ids {
                let doubt = sent.contains(id) ? " It had been sent: the backend may have done it." : ""
                let text = "Request \(id) is dropped.\(doubt) Its sender is notified if connected."
                outcomes.append(try await QueueCommand.carryOut(.drop(id), "\(id)", text, on: gateway))
            }
            return try QueueCommand.answer(outcomes, json: common.json)
        }
    }

    /// `pawl queue retry`
    struct Retry: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send dead requests again, if their recipients can still open them.",
            discussion: """
                The same bytes are sent. In front of a backend that speaks HTTP they keep their place in the queue. On IRC they \
                are sent after all later messages, and a request is refused if the recipient has already opened it, if keys or \
                the session have been set up anew, and in a sidecar, which does not have the recipient's keys.
                """)
        @Argument(help: "Ids, from pawl queue list --state dead.") var ids: [UInt64] = []
        @Flag(help: "All dead requests.") var dead = false
        @Flag(help: "All dead requests, and at once those that wait for their next attempt.") var all = false
        @Option(help: "The token that the gateway gave for this.") var confirm: String?
        @Flag(help: "Do it without asking.") var yes = false
        @OptionGroup var common: CommonOptions

        func validate() throws {
            guard [!ids.isEmpty, dead, all].count(where: { $0 }) == 1 else {
                throw ValidationError("Name requests, or --dead, or --all.")
            }
        }

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            if dead || all { return try await retryAll(gateway) }
            var outcomes: [Outcome] = []
            for id in ids {
                let text = "Request \(id) waits again. See: pawl queue show \(id)"
                outcomes.append(try await QueueCommand.carryOut(.retry(id), "\(id)", text, on: gateway))
            }
            return try QueueCommand.answer(outcomes, json: common.json)
        }

        private func retryAll(_ gateway: Gateway) async throws -> AdminAnswer {
            let words = all ? "retry all" : "retry dead"
            let count = try gateway.front.deadRequests().count
            // Without dead requests nothing is sent twice, so there is nothing to ask.
            guard yes || count == 0 || gateway.confirmations.accept(confirm, for: words) else {
                return gateway.question(
                    "This sends \(QueueCommand.dead(count)) again. Messages that the backend already has may appear there "
                        + "twice.", words)
            }
            let hurried = all ? try await gateway.front.endPauses() : 0
            let (retried, refused) = try await gateway.front.retryDead(on: gateway)
            var outcomes = [
                Outcome(subject: "dead", done: "\(QueueCommand.dead(retried)) sent again. See: pawl queue list")
            ]
            if all {
                outcomes.append(Outcome(subject: "waiting", done: "\(hurried) that waited for an attempt go now."))
            }
            if refused > 0 {
                let text = "\(QueueCommand.dead(refused)) cannot be sent again; pawl queue retry ID says why."
                outcomes.append(Outcome(subject: "dead", refused: text, code: "not-repeatable"))
            }
            return try QueueCommand.answer(outcomes, json: common.json)
        }
    }

    static func dead(_ count: Int) -> String { "\(count) dead \(count == 1 ? "request" : "requests")" }

    /// `pawl queue purge`
    struct Purge: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove dead requests for good. The act is audited.",
            discussion: "Without ids all dead requests are removed. To remove waiting requests: pawl queue drop.")
        @Argument(help: "Ids, from pawl queue list --state dead.") var ids: [UInt64] = []
        @Option(help: "The token that the gateway gave for this.") var confirm: String?
        @Flag(help: "Do it without asking.") var yes = false
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let names = ids.map { "\($0)" }.joined(separator: " ")
            let words = "purge \(names)"
            let count = ids.isEmpty ? try gateway.front.deadRequests().count : ids.count
            guard yes || count == 0 || gateway.confirmations.accept(confirm, for: words) else {
                return gateway.question(
                    "This removes \(QueueCommand.dead(count)) for good: they cannot be sent again.", words)
            }
            guard !ids.isEmpty else {
                let text = "\(QueueCommand.dead(try await gateway.front.purgeDead(on: gateway))) removed."
                return try QueueCommand.answer([Outcome(subject: "dead", done: text)], json: common.json)
            }
            var outcomes: [Outcome] = []
            for id in ids {
                let text = "Request \(id) is removed."
                outcomes.append(try await QueueCommand.carryOut(.purge(id), "\(id)", text, on: gateway))
            }
            return try QueueCommand.answer(outcomes, json: common.json)
        }
    }
}

extension Gateway {
    fileprivate func displayName(_ scope: RequestScope) -> String {
        switch scope {
        case .request(let id): "Request \(id)"
        case .account(let account): "All of \(displayName(account))"
        }
    }
}

extension Gateway {
    /// Whether a request has been sent to a backend that speaks HTTP, which has not answered.
    fileprivate func isUnderWay(_ id: UInt64) throws -> Bool {
        try front.isInFlight(id)
    }

    /// A hint for an operator who may have mistyped a name; empty if the account is connected.
    fileprivate func hint(_ scope: RequestScope) -> String {
        if case .account(let account) = scope { front.hint(for: account) } else { "" }
    }
}

extension RequestScope {
    /// As an operator types it.
    fileprivate func words(_ gateway: Gateway) -> String {
        switch self {
        case .request(let id): "\(id)"
        case .account(let account): "--account \(gateway.displayName(account))"
        }
    }
}
