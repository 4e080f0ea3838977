// Contact cards: what a person shows to another one, so that keys need not be compared by eye.

import Devices
import DoubleRatchet
import Envelope
import Messenger
import Protection

/// A person's name and the key from which their safety numbers are made, to be handed over outside the server.
///
/// Show ``uri`` as a QR code, or hand over ``bytes`` as a file. A card contains no secret. It is worth as much as the way
/// on which it came: an attacker who replaces it on its way is verified in place of the person.
public struct ContactCard: Hashable, Sendable, CustomStringConvertible {
    /// Why a text or a file is no card.
    public enum Failure: Error, Sendable, Hashable {
        /// It is damaged, cut, or something else.
        case malformed
        /// It was made by a later version of the library.
        case unsupportedVersion
    }

    /// Bytes of the longest file; a longer one is refused before it is read.
    public static let fileLimit = CardForm.fileLimit

    let form: CardForm

    init(_ form: CardForm) { self.form = form }

    /// Reads the text of a QR code, or a link, in the one form that ``uri`` has.
    ///
    /// - Throws: ``Failure``
    public init(uri: String) throws(Failure) {
        guard let form = try? CardForm(uri: uri) else { throw .malformed }
        self.form = form
    }

    /// Reads a file. The keys in it have to be signed by the devices of the person for this name.
    ///
    /// - Throws: ``Failure``
    public init(bytes: [UInt8]) throws(Failure) {
        do {
            form = try CardForm(bytes)
        } catch EnvelopeError.unsupportedVersion {
            throw .unsupportedVersion
        } catch {
            throw .malformed
        }
        guard !form.keys.isEmpty else { return }
        guard let keys = try? PublishedKeys(form.keys), keys.deviceList.root == form.root,
            !keys.confirmed(for: username.raw).isEmpty
        else { throw .malformed }
    }

    /// The person.
    public var username: Username { Username(form.name) }
    /// The text of the QR code: `pawl:contact?name=...`, at most 213 bytes for names of up to 134 ASCII letters and
    /// digits, at most 844 for all names.
    public var uri: String { form.uri }
    /// The bytes of the file, at most ``fileLimit``.
    public var bytes: [UInt8] { form.bytes }
    /// The person's published keys; nil if the card was read from a QR code.
    public var config: UserConfig? { form.keys.isEmpty ? nil : UserConfig(bytes: form.keys) }
    /// The URI.
    public var description: String { uri }

    /// The bytes of the file are equal.
    public static func == (left: ContactCard, right: ContactCard) -> Bool { left.form == right.form }
    /// Hashes the bytes of the file.
    public func hash(into hasher: inout Hasher) { hasher.combine(form.bytes) }
}

/// What comparing a card with the known keys has shown.
public enum ContactCardResult: Sendable, Hashable {
    /// The keys are the same, and the person is verified from now on.
    case verified
    /// It is a card of this account.
    case own
    /// The known keys, or those that the server shows for a new person, are not those of the card. Nothing has changed.
    /// Someone may read along, or the person has registered again, or the card is an old one.
    case differs
    /// The card has the keys that are known, and the server shows others. Nothing has changed: do not accept the others
    /// before the person has confirmed them. Also if two versions of the device list are shown, because the card is the
    /// same for both; see ``CypherMessengerEventHandler/onDeviceListFork(of:)``.
    case serverShowsOthers
    /// The card has the new keys that the person shows. Accept them with ``PrivateChat/acceptKeys()`` and read the card
    /// again.
    case confirmsNewKeys
}

extension CypherMessenger {
    /// The card of this account.
    ///
    /// - Throws: ``CypherMessengerError/noSuchDevice`` before this device is in the account's list.
    public func contactCard() async throws -> ContactCard {
        guard let (root, published) = try await engine.read({ $0.cardKeys }) else {
            throw CypherMessengerError.noSuchDevice
        }
        do {
            return ContactCard(try CardForm(name: username.raw, root: root, keys: published?.bytes ?? []))
        } catch {
            // A name that no card can carry.
            throw CypherMessengerError.tooLong
        }
    }

    /// Compares a card with the keys of the person that it names, and verifies the person if they are the same.
    ///
    /// Call it only for cards that come from the person: from their screen or from their hands, not over the server. The
    /// keys of a person who is not known yet are read from the server, or taken from the card's file if the server has
    /// none. Known keys are never replaced.
    ///
    /// - Throws: ``CypherMessengerError/keysMissing`` if neither the server nor the card has keys of a new person; an
    ///   error of the transport if the server did not answer.
    @discardableResult
    public func verify(card: ContactCard) async throws -> ContactCardResult {
        try await verify(card, as: card.username)
    }

    /// Compares a card with the keys of a person. The name in the card does not count: servers may know the person by
    /// another one.
    func verify(_ card: ContactCard, as user: Username) async throws -> ContactCardResult {
        let root = card.form.root
        guard user != username else { return peers.own?.deviceList.root == root ? .own : .differs }
        let name = AccountID.services(user.raw)
        if peers[name] == nil {
            guard try await learn(user, card) else { return .differs }
        }
        guard let peer = peers[name] else { throw CypherMessengerError.keysMissing }
        if let offered = peer.offered {
            // A card says nothing about two lists that have the same first key.
            if offered.root == root { return peer.isForked ? .serverShowsOthers : .confirmsNewKeys }
            return peer.deviceList.root == root ? .serverShowsOthers : .differs
        }
        guard peer.deviceList.root == root else { return .differs }
        _ = try await perform { .decide(ticket: $0, user.raw, .confirm(root)) }
        // The keys may have changed since they were compared: then the decision had no effect.
        guard let peer = peers[name], peer.isVerified, peer.offered == nil, peer.deviceList.root == root else {
            return .differs
        }
        return .verified
    }

    /// Pins the keys of a person who is not known yet, if they are those of the card.
    ///
    /// - Returns: whether they are.
    private func learn(_ user: Username, _ card: ContactCard) async throws -> Bool {
        var config: UserConfig?
        var isServerWithout = false
        do {
            config = try await transport.readKeyBundle(forUsername: user)
        } catch CypherTransportError.notFound, CypherTransportError.unsupported {
            isServerWithout = true
        } catch {
            guard card.config != nil, card.username == user else { throw error }
        }
        if let config {
            guard let keys = try? PublishedKeys(config.bytes), keys.deviceList.root == card.form.root else {
                return false
            }
        } else if card.username == user {
            config = card.config
        }
        guard let config else { throw CypherMessengerError.keysMissing }
        _ = try await perform { .keys(ticket: $0, config.bytes, of: user.raw, NewSessions(begins: isServerWithout)) }
        return true
    }
}

extension PrivateChat {
    /// Compares a card with the keys of this person, and verifies the person if they are the same; see
    /// ``CypherMessenger/verify(card:)``.
    ///
    /// The name in the card does not count: use this where the server knows people by changing names.
    @discardableResult
    public func verify(card: ContactCard) async throws -> ContactCardResult {
        try await messenger.verify(card, as: username)
    }
}
