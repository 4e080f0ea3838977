// The server transport client of an app, with the calls and properties of the document: `async throws` in place of
// futures, and protocol requirements with defaults in place of optional calls.

/// The app's own connection to its server.
///
/// Every call returns when the server has acknowledged it, and throws otherwise. An error other than
/// ``CypherTransportError/refused(_:)``, ``CypherTransportError/conflict`` and ``CypherTransportError/unsupported(_:)``
/// means that the call is made again, with the same bytes.
public protocol CypherServerTransportClient: AnyObject, Sendable {
    /// Receives the server's events. Implement it as `weak`.
    var delegate: (any CypherTransportClientDelegate)? { get set }
    /// Whether calls may succeed. The messenger makes none before it is `.authenticated`.
    var authenticated: AuthenticationState { get }
    /// Whether ``sendMultiRecipientMessage(_:messageId:)`` is used for messages to several devices. May change later.
    var supportsMultiRecipientMessages: Bool { get }

    /// Sends a message to one device. Required.
    func sendMessage(
        _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId, messageId: String
    ) async throws
    /// Returns the published keys of a person, also of the own account. Required.
    ///
    /// - Throws: ``CypherTransportError/notFound`` if the account has published none; any other error says nothing about
    ///   the account.
    func readKeyBundle(forUsername username: Username) async throws -> UserConfig
    /// Publishes the keys of the own account. Required.
    func publishKeyBundle(_ data: UserConfig) async throws

    /// Takes one one-time prekey of each device of a person from the server, as far as it has some. No two calls get the
    /// same one.
    ///
    /// - Throws: ``CypherTransportError/offline`` if the keys are to be asked for again; after any other error sessions
    ///   begin without them.
    func takeOneTimePreKeys(ofUser username: Username) async throws -> [OneTimePreKeyConfig]
    /// Adds one-time prekeys of this device to those that the server has.
    func publishOneTimePreKeys(_ keys: [OneTimePreKeyConfig]) async throws

    /// Sets the token under which a push service knows this device, so that it can be woken when a message waits for it;
    /// nil for none.
    func setPushToken(_ token: String?) async throws

    /// Opens the connection.
    func reconnect() async throws
    /// Closes the connection.
    func disconnect() async throws
    /// Asks the master device of the own account to add this device.
    func requestDeviceRegistery(_ config: UserDeviceConfig) async throws
    /// Confirms to all devices of a person that a message was read.
    func sendMessageReadReceipt(byRemoteId remoteId: String, to username: Username) async throws
    /// Confirms to all devices of a person that a message has been stored.
    func sendMessageReceivedReceipt(byRemoteId remoteId: String, to username: Username) async throws
    /// Stores a value at the server, under an id that the server chooses.
    func publishBlob<C: Codable & Sendable>(_ blob: C) async throws -> ReferencedBlob<C>
    /// Returns a stored value; nil if there is none.
    func readPublishedBlob<C: Codable & Sendable>(byId id: String, as type: C.Type) async throws -> ReferencedBlob<C>?
    /// Removes a value that this account has stored.
    func removePublishedBlob(byId id: String) async throws
    /// Sends one message to several devices.
    func sendMultiRecipientMessage(_ message: MultiRecipientCypherMessage, messageId: String) async throws
}

/// The optional calls: without an implementation they throw ``CypherTransportError/unsupported(_:)`` with their name.
extension CypherServerTransportClient {
    /// False: messages go to one device at a time.
    public var supportsMultiRecipientMessages: Bool { false }
    /// Throws: sessions begin with the published keys alone.
    public func takeOneTimePreKeys(ofUser username: Username) async throws -> [OneTimePreKeyConfig] {
        throw CypherTransportError.unsupported("takeOneTimePreKeys")
    }
    /// Throws.
    public func publishOneTimePreKeys(_ keys: [OneTimePreKeyConfig]) async throws {
        throw CypherTransportError.unsupported("publishOneTimePreKeys")
    }
    /// Throws: the server wakes no device.
    public func setPushToken(_ token: String?) async throws {
        throw CypherTransportError.unsupported("setPushToken")
    }
    /// Does nothing: the transport has no connection.
    public func reconnect() async throws {}
    /// Does nothing: the transport has no connection.
    public func disconnect() async throws {}
    /// Throws: the account has one device.
    public func requestDeviceRegistery(_ config: UserDeviceConfig) async throws {
        throw CypherTransportError.unsupported("requestDeviceRegistery")
    }
    /// Throws: the messenger sends sealed receipts.
    public func sendMessageReadReceipt(byRemoteId remoteId: String, to username: Username) async throws {
        throw CypherTransportError.unsupported("sendMessageReadReceipt")
    }
    /// Throws: the messenger sends sealed receipts.
    public func sendMessageReceivedReceipt(byRemoteId remoteId: String, to username: Username) async throws {
        throw CypherTransportError.unsupported("sendMessageReceivedReceipt")
    }
    /// Throws.
    public func publishBlob<C: Codable & Sendable>(_ blob: C) async throws -> ReferencedBlob<C> {
        throw CypherTransportError.unsupported("publishBlob")
    }
    /// Throws.
    public func readPublishedBlob<C: Codable & Sendable>(
        byId id: String, as type: C.Type
    ) async throws -> ReferencedBlob<C>? {
        throw CypherTransportError.unsupported("readPublishedBlob")
    }
    /// Throws: values stay.
    public func removePublishedBlob(byId id: String) async throws {
        throw CypherTransportError.unsupported("removePublishedBlob")
    }
    /// Throws.
    public func sendMultiRecipientMessage(
        _ message: MultiRecipientCypherMessage, messageId: String
    ) async throws {
        throw CypherTransportError.unsupported("sendMultiRecipientMessage")
    }
}

/// A transport of an existing app, whose messages may also be texts that nobody has sealed.
public protocol PlaintextTransportClient: CypherServerTransportClient {
    /// Whether an unprotected text may go to a person without keys now. Asked for each message.
    func allowsPlaintext(to username: Username) -> Bool
    /// Whether a text to a person without keys is refused at once, and does not wait for keys. Asked for each message.
    func refusesToWait(for username: Username) -> Bool
    /// Sends an unprotected text.
    func sendPlaintext(_ text: String, to username: Username, messageId: String) async throws
}

/// An event of the server.
public enum CypherServerEvent: Sendable {
    /// A message for this device.
    case messageSent(RatchetedCypherMessage, id: String, byUser: Username, deviceId: DeviceId)
    /// A message for several devices, this one among them.
    case multiRecipientMessageSent(MultiRecipientCypherMessage, id: String, byUser: Username, deviceId: DeviceId)
    /// A person has read a message.
    case messageDisplayed(by: Username, deviceId: DeviceId, id: String)
    /// A device of a person has stored a message.
    case messageReceived(by: Username, deviceId: DeviceId, id: String)
    /// The server has dropped messages of a device for this one: it was away for long. The messenger asks for them.
    case messagesLost(byUser: Username, deviceId: DeviceId, count: Int)
    /// A device asks the master device to be added to the account.
    case requestDeviceRegistery(UserDeviceConfig)
    /// The server has few one-time prekeys of this device left: the messenger adds some.
    case oneTimePreKeysLow(left: Int)
    /// The published keys of a person, for transports that carry them in band.
    case keyBundlePublished(UserConfig, byUser: Username)
    /// An unprotected text; see ``PlaintextTransportClient``. A text with the same id is the same text; nil if it has none.
    case plaintextReceived(String, id: String?, byUser: Username)
}

/// The messenger, as a transport sees it.
public protocol CypherTransportClientDelegate: AnyObject, Sendable {
    /// Takes an event. The return is the acknowledgement: from then on the server may forget it.
    ///
    /// Pass on the events of one device one after the other, in their order.
    ///
    /// - Throws: an error if the event has to be delivered again later.
    func receiveServerEvent(_ event: CypherServerEvent) async throws
    /// Takes note that ``CypherServerTransportClient/authenticated`` has changed.
    func authenticationChanged(to state: AuthenticationState)
}
