// Codes of failures. Scripts and tests compare them; the texts beside them are for people, and change.

import NIOSupport
import Outbox
import PawlConfiguration
import RequestQueue
import StorePort

/// The code of a failure of a command. The raw values never change.
enum FailureCode: String, CaseIterable, Sendable {
    // The command
    /// A failure without a code of its own.
    case failed
    case confirmationRequired = "confirmation-required"
    case notACommand = "not-a-command"
    case commandTooLong = "command-too-long"
    case notOverTheSocket = "not-over-the-socket"
    case wrongUsage = "wrong-usage"
    case wrongInterval = "wrong-interval"
    case tooManyWatchers = "too-many-watchers"
    case slowReader = "slow-reader"
    case noGateway = "no-gateway"
    // The role and the protocol
    case isGateway = "is-gateway"
    case isSidecar = "is-sidecar"
    case noSidecar = "no-sidecar"
    case noDirectory = "no-directory"
    case noMapping = "no-mapping"
    case noQueue = "no-queue"
    // Names
    case conversationNotNamed = "conversation-not-named"
    case nameOfRoom = "name-of-room"
    case nameOfNoRoom = "name-of-no-room"
    case nameWithSpace = "name-with-space"
    case unknownAccount = "unknown-account"
    case nickWithoutAccount = "nick-without-account"
    case unknownRoom = "unknown-room"
    case noSuchPolicy = "no-such-policy"
    case noSuchState = "no-such-state"
    case noSuchDevice = "no-such-device"
    case noSuchGateway = "no-such-gateway"
    case noDevices = "no-devices"
    case notInRoom = "not-in-room"
    // Several gateways on one database
    case standingBy = "standing-by"
    case noGateways = "no-gateways"
    case gatewayRuns = "gateway-runs"
    case noStandby = "no-standby"
    // Policies and protection
    case conversationsProtected = "conversations-protected"
    case everyonesPolicy = "everyones-policy"
    case noOwnPolicy = "no-own-policy"
    case notProtected = "not-protected"
    // A sidecar's keys
    case noKeys = "no-keys"
    case keysKnown = "keys-known"
    case noOwnDevice = "no-own-device"
    case ownDevice = "own-device"
    case keysChanged = "keys-changed"
    case noNewKeys = "no-new-keys"
    case listFull = "list-full"
    case noClient = "no-client"
    case notACard = "not-a-card"
    case cardDiffers = "card-differs"
    // Files and directories
    case relativePath = "relative-path"
    case noStore = "no-store"
    case storeInDatabase = "store-in-database"
    case noQueueFile = "no-queue-file"
    case sampleUnreadable = "sample-unreadable"
    case configurationRefused = "configuration-refused"
    case certificateUnusable = "certificate-unusable"
    case authoritiesUnusable = "authorities-unusable"
    case directoryOfSidecar = "directory-of-sidecar"
    case directoryOfGateway = "directory-of-gateway"
    case otherProtocol = "other-protocol"
    case unknownProtocol = "unknown-protocol"
    case otherNetwork = "other-network"
    case notStored = "not-stored"
    case cannotListen = "cannot-listen"
}

extension FailureCode {
    /// The code of an error that the program reports; nil if it has none.
    static func of(_ error: any Error) -> String? {
        switch error {
        case let error as AdminFailure: error.code
        case let error as StoreError: error.code
        case let error as QueueStoreError: error.isDamage ? "queue-damaged" : "queue-unavailable"
        case is ConfigurationError: Self.configurationRefused.rawValue
        case is ListenFailure: Self.cannotListen.rawValue
        default: nil
        }
    }
}

extension FailureCode {
    /// A command or an option that helps after a failure; nil if the message is all there is.
    ///
    /// - Parameter code: of any failure of the program, not only those of this type.
    static func hint(of code: String) -> String? {
        guard let known = FailureCode(rawValue: code) else {
            return code.hasPrefix("request-") || code == "no-such-request" ? "pawl queue list" : nil
        }
        return switch known {
        case .noGateway: "--data DIR"
        case .unknownAccount, .nickWithoutAccount: "pawl users"
        case .noOwnPolicy, .everyonesPolicy, .noSuchPolicy: "pawl policy get"
        case .conversationsProtected, .notProtected, .conversationNotNamed: "pawl conversations list"
        case .noDevices: "pawl devices list"
        case .noQueueFile, .noStore: "--data DIR"
        case .noSuchState: "--state pending"
        case .standingBy, .noSuchGateway, .gatewayRuns, .noStandby: "pawl gateways list"
        case .configurationRefused: "pawl config keys"
        case .keysChanged, .keysKnown, .noNewKeys, .noKeys, .noOwnDevice: "pawl sidecar status"
        default: nil
        }
    }
}

/// A failure with a message for the operator.
struct AdminFailure: Error {
    let code: String
    let message: String

    init(_ code: FailureCode, _ message: String) { (self.code, self.message) = (code.rawValue, message) }
    init(_ refusal: ActRefusal) { (code, message) = (refusal.code, refusal.text) }
    init(_ error: StoreError) { (code, message) = (error.code, error.message) }
}
