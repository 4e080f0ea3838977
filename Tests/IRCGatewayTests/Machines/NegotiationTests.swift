import IRCCodec
import Testing

@testable import IRCGateway

/// The gateway's own negotiation as a transcript: what the backend says, and what each side is sent.
@Suite struct NegotiationTests {
    private var machine = CapabilityNegotiation()
    private var answers: [String] = []
    private var requests: [String] = []

    /// Handles a line of the backend; returns whether it is forwarded.
    private mutating func backend(_ line: String) throws -> Bool {
        (answers, requests) = ([], [])
        return machine.fromBackend(try parsed(line), answers: &answers, requests: &requests)
    }

    private mutating func client(_ line: String) throws -> CapabilityNegotiation.ClientOutcome {
        answers = []
        return machine.fromClient(try parsed(line), answers: &answers)
    }

    @Test mutating func theClientWaitsUntilTheGatewayHasItsCapabilities() throws {
        #expect(machine.begin() == "CAP LS 302")
        #expect(machine.begin() == nil, "begun once")
        machine.hold(at: 4)
        machine.expectAnswer(now: 0)
        #expect(machine.awaitsFirstAnswer && !machine.isOverdue(now: 4_999_999_999))
        #expect(try backend(":srv CAP * LS * :sasl") == false && machine.stage == .listing)
        #expect(try backend(":srv CAP * LS :message-tags account-tag unknown") == false)
        #expect(requests == ["CAP REQ :message-tags account-tag"] && machine.stage == .requesting)
        #expect(try backend(":srv CAP * ACK :message-tags account-tag") == false)
        #expect(machine.stage == .done && machine.has("account-tag") && !machine.has("sasl"))
        #expect(machine.release() == 4 && machine.release() == nil && machine.deadline == nil)
    }

    /// Without labels an echo cannot be distinguished from a message to oneself.
    @Test mutating func echoesAreRequestedWithLabelsOnly() throws {
        _ = machine.begin()
        _ = try backend(":srv CAP * LS :echo-message labeled-response server-time")
        #expect(requests == ["CAP REQ :server-time"])
    }

    @Test mutating func aBackendThatDoesNotAnswerIsGivenUp() throws {
        _ = machine.begin()
        machine.hold(at: 4)
        machine.expectAnswer(now: 0)
        machine.expectAnswer(now: 9)
        #expect(try client("CAP LS 302") == .forward)
        #expect(machine.isOverdue(now: 5_000_000_000), "the first wait counts")
        machine.giveUp(answers: &answers)
        #expect(answers.count == 1 && answers.first?.hasSuffix(" LS :pawl/e2ee") == true)
        #expect(machine.stage == .done && machine.backendKnowsCAP == false && machine.owesEnd)
        #expect(!machine.isOverdue(now: .max) && machine.lateLists == 2)
        // Both lists arrive late, and neither is shown.
        #expect(try backend(":srv CAP * LS :sasl") == false && answers.isEmpty)
        #expect(try backend(":srv CAP * LS :sasl") == false && answers.isEmpty && machine.lateLists == 0)
    }

    @Test mutating func aBackendWithoutCAPIsKnownByItsRefusal() throws {
        _ = machine.begin()
        let isRefusal = machine.backendRefusedCAP(answers: &answers)
        #expect(isRefusal)
        #expect(machine.stage == .done && machine.backendKnowsCAP == false && answers.isEmpty)
        #expect(try client("CAP REQ :pawl/e2ee") == .consumed)
        #expect(machine.clientAsked && answers.first?.hasSuffix(" ACK :pawl/e2ee") == true)
    }

    @Test mutating func afterAnOutageTheClientsCapabilitiesAreRequestedAgain() throws {
        _ = try client("CAP REQ :away-notify")
        _ = try backend(":srv CAP * ACK :away-notify")
        machine.expectAnswer(now: 0)
        machine.restart()
        #expect(machine.stage == .notStarted && machine.deadline == nil && machine.clientHas("away-notify"))
        #expect(machine.begin() == "CAP LS 302")
        _ = try backend(":srv CAP * LS :away-notify sasl server-time")
        #expect(requests == ["CAP REQ :server-time away-notify sasl"])
    }
}
