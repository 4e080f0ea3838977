import Crypto
import DoubleRatchet
import Protection
import TestKit

@testable import DeviceDirectory
@testable import Devices
@testable import Envelope
@testable import Messenger

/// Device lists, introductions, control messages, messages of the directory, published keys and contact cards.
enum DeviceForms {
    static let readers: [FormProgramme.Reader] = [
        { try lists(&$0) }, { try introduction(&$0) }, { try control(&$0) }, { try roomRequest(&$0) },
        { try peer(&$0) }, { try pins(&$0) }, { try cardFile(&$0) }, { try cardURI(&$0) }, { try directory(&$0) },
        { try published(&$0) }, { try deviceRequest(&$0) },
    ]

    private static func isText(_ bytes: [UInt8]) -> Bool { String(validating: bytes, as: UTF8.self) != nil }

    // MARK: Lists

    /// Signs the versions of a list again that name one of our devices as their signer, so that changes to signed bytes are
    /// read as those of a dishonest device.
    private static func signedAgain(_ bytes: [UInt8]) -> [UInt8] {
        var (output, place, previous) = (Array(bytes.prefix(2)), 2, [UInt8](repeating: 0, count: 64))
        guard bytes.count > 2 else { return bytes }
        for version in 1...UInt32(max(bytes[1], 1)) {
            guard place < bytes.count, case let size = 1 + Int(bytes[place]) * 40, place + size + 72 <= bytes.count
            else {
                break
            }
            let (devices, signer) = (bytes[place..<place + size], Array(bytes[place + size..<place + size + 8]))
            var message: [UInt8] = []
            message.append(bigEndian: version)
            message += previous + signer + devices
            previous = Array(bytes[place + size + 8..<place + size + 72])
            let id = signer.reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            if let device = FormDevice.all.first(where: { $0.id.value == id }) {
                previous = device.sign(message, "pawl device list")
            }
            output += devices + signer + previous
            place += size + 72
        }
        return output + bytes[min(place, bytes.count)...]
    }

    private static func lists(_ input: inout FormInput) throws {
        let genuine = FormDevice.list(&input)
        let isSigned = input.byte() % 2 == 0
        let changed = input.changed(genuine.bytes)
        let bytes = isSigned ? signedAgain(changed) : changed
        guard let list = try? DeviceList(bytes) else {
            return try demand(bytes != genuine.bytes, "a genuine list is refused")
        }
        try check(list, bytes)
        if !isSigned, list != genuine {
            try demand(
                list.versions.allSatisfy { version in FormDevice.all.contains { $0.id == version.signer } },
                "a version that no device has signed")
            let own = FormDevice.all.contains { $0.list.root == list.root }
            try demand(own, "a list of keys that no device has")
        }
        try demand(!list.continues(genuine) || list.root == genuine.root, "another list continues a list")
        _ = list.safetyNumber(with: genuine)
    }

    private static func check(_ list: DeviceList, _ bytes: [UInt8]) throws {
        try demand(list.bytes == bytes, "a list is written in other bytes")
        try demand((1...DeviceList.deviceLimit).contains(list.current.count), "a list of too many devices")
        try demand(list.versions.count <= DeviceList.versionLimit, "a list of too many versions")
        try demand(list.continues(list) && list.commonVersions(with: list) == list.versions.count, "not itself")
        for version in list.versions {
            try demand(Set(version.devices.map(\.id)).count == version.devices.count, "a device twice")
            try demand(Set(version.devices.map(\.identity)).count == version.devices.count, "a key twice")
        }
    }

    // MARK: What devices show each other

    private static func introduction(_ input: inout FormInput) throws {
        let device = FormDevice.all[0]
        let genuine = Introduction(
            time: Int64(input.number()), deviceList: FormDevice.list(&input), bundle: device.bundle, device: device.id)
        let isSigned = input.byte() % 2 == 0
        let written = genuine.bytes(signedBy: device.identity)
        var bytes = input.changed(written)
        if isSigned, bytes.count > 64 {
            var message = Array(bytes.dropLast(64))
            message.append(bigEndian: device.id.value)
            bytes = Array(bytes.dropLast(64)) + device.sign(message, "pawl introduction")
        }
        guard let read = try? Introduction(bytes, from: device.id) else { return }
        try demand(isSigned || bytes == written, "an altered introduction is accepted")
        try demand(read.bytes(signedBy: device.identity) == bytes, "an introduction is written in other bytes")
        try demand(read.deviceList.identity(of: device.id) == device.identity.publicKey, "a device of another list")
        try demand(read.bundle.identity == device.identity.publicKey, "keys of another device")
        try demand((try? Introduction(bytes, from: FormDevice.all[1].id)) == nil, "another device has the introduction")
        // A copy changes nothing.
        var peer = Peer(name: .services("a"), deviceList: read.deviceList, since: 0)
        try demand(peer.takes(read), "a first introduction is a copy")
        let before = peer
        try demand(!peer.takes(read) && peer == before, "a copy is taken")
    }

    private static func control(_ input: inout FormInput) throws {
        var random = SeededGenerator(seed: 5)
        let key = SenderKey(random: &random)
        let message: ControlMessage
        switch input.byte() % 6 {
        case 0: message = .ready(FormDevice.list(&input))
        case 1: message = .acknowledge(FormDevice.list(&input))
        case 2:
            let ended = (0..<input.byte() % 3).map { _ in EndedKey(id: UInt32(input.number()), count: 7) }
            message = .senderKey(room: input.text(), key.distribution, ended: ended)
        case 3: message = .senderKeyWanted(room: input.text())
        case 4: message = .adopted(FormDevice.list(&input))
        default:
            let device = FormDevice.all[0]
            message = .roomRequest(
                RoomRequest(
                    act: .protect, number: 5, room: input.text(), network: "net", device: device.id,
                    identity: device.identity))
        }
        let genuine = message.body.text
        try demand((try? ControlMessage(genuine))?.body.text == genuine, "a message is read as another")
        let bytes = input.changed(genuine)
        guard let read = try? ControlMessage(bytes) else { return }
        let written = read.body.text
        try demand((try? ControlMessage(written))?.body.text == written, "a message is written as another")
        if written != bytes { try demand(!isText(bytes), "a message has two forms") }
    }

    private static func roomRequest(_ input: inout FormInput) throws {
        let (device, other) = (FormDevice.all[0], FormDevice.all[1])
        let genuine = RoomRequest(
            act: input.byte() % 2 == 0 ? .protect : .plain, number: Int64(input.number()), room: input.text(),
            network: input.text(), device: device.id, identity: device.identity)
        try demand((try? RoomRequest(genuine.bytes)) == genuine, "a request is read as another")
        let bytes = input.changed(genuine.bytes)
        guard let read = try? RoomRequest(bytes) else { return }
        try demand(!read.isSigned(by: device.identity.publicKey, other.id), "a request of another device")
        if read.isSigned(by: device.identity.publicKey, device.id) {
            try demand(read == genuine, "an altered request is signed")
        }
        // Numbers only rise, whatever comes.
        var peer = Peer(name: .services("a"), deviceList: device.list, since: 0)
        _ = peer.takes(request: genuine.number, of: device.id)
        _ = peer.takes(request: read.number, of: device.id)
        try demand(!peer.takes(request: genuine.number, of: device.id), "a request counts twice")
    }

    /// A stored peer, and what it holds for others.
    private static func peer(_ input: inout FormInput) throws {
        var peer = Peer(name: .services("a"), deviceList: FormDevice.list(&input), since: Int64(input.number()))
        if input.byte() % 2 == 0 { peer.offered = FormDevice.list(&input) }
        peer.isVerified = input.byte() % 2 == 0
        peer.settledVersions = input.byte() % 3
        peer.note(FormDevice.all[0].id, introducedAt: 7)
        _ = peer.takes(request: 9, of: FormDevice.all[0].id)
        try demand((try? Peer(name: peer.name, bytes: peer.bytes)) == peer, "a peer is stored as another")
        guard let read = try? Peer(name: peer.name, bytes: input.changed(peer.bytes)) else { return }
        try demand(read.introduced.count <= 255, "too many devices")
        try demand((try? Peer(name: peer.name, bytes: read.bytes)) == read, "a peer is stored as another")
    }

    /// Lists that anybody shows: without a person's decision a pinned list only grows, and the own list stays.
    private static func pins(_ input: inout FormInput) throws {
        let own = FormDevice.all[0]
        var table = PinTable(device: own.id, deviceList: own.list)
        let names = ["a", "b"].map { AccountID.services($0) }
        for _ in 0..<12 where !input.isAtEnd {
            let (shown, device) = (FormDevice.list(&input), FormDevice.all[input.byte() % 4])
            // Nobody else has the key of this device.
            guard shown.root == own.list.root || shown.versions.allSatisfy({ $0.signer != own.id }) else { continue }
            let name = names[input.byte() % 2]
            let before = table.peers
            let assessment = table.assess(shown, with: device.id, as: [name], at: 1)
            try demand(table.peers == before && table.deviceList == own.list, "an assessment changes the table")
            switch assessment {
            case .new(let peer):
                try demand(before[name] == nil && peer.name == name, "a known person is new")
                try demand(shown.root != own.list.root, "the own list under another name")
                table.put(peer)
            case .known(let peer, _):
                guard let known = before[peer.name] else {
                    throw FormFinding(description: "an unknown person is known")
                }
                try demand(peer.deviceList.continues(known.deviceList), "a pinned list is replaced")
                try demand(peer.deviceList.identity(of: device.id) != nil, "a device that is not listed")
                table.put(peer)
            case .changed(let peer), .forked(let peer, _):
                guard let known = before[peer.name] else { throw FormFinding(description: "an unknown person changes") }
                try demand(peer.deviceList == known.deviceList && peer.offered == shown, "a pinned list is replaced")
                try demand(peer.isVerified == known.isVerified, "another verification")
                table.put(peer)
                try demand(table.devices(of: peer.name).isEmpty, "messages go on while other keys are shown")
            case .own(let list): try demand(list.root == own.list.root, "the list of another")
            case .refused: break
            }
            try demand(table.owner(of: own.id) == nil, "this device belongs to another")
        }
    }

    // MARK: Cards

    private static func card(_ input: inout FormInput) -> CardForm? {
        let device = FormDevice.all[input.byte() % 4]
        return try? CardForm(name: input.text(), root: device.identity.publicKey, keys: input.take(input.byte() % 8))
    }

    private static func cardFile(_ input: inout FormInput) throws {
        guard let card = card(&input) else { return }
        try demand((try? CardForm(card.bytes)) == card, "a card is read as another")
        let isSummed = input.byte() % 2 == 0
        var bytes = input.changed(card.bytes)
        if isSummed, bytes.count > 32 { bytes = bytes.dropLast(32) + SHA256.hash(data: Array(bytes.dropLast(32))) }
        guard let read = try? CardForm(bytes) else { return }
        try demand(isSummed || bytes == card.bytes || bytes.count > 32 && read.bytes == bytes, "an altered card")
        try demand(read.bytes == bytes && bytes.count <= CardForm.fileLimit, "a card is written in other bytes")
        try uri(read)
    }

    private static func uri(_ card: CardForm) throws {
        try demand(card.uri.utf8.count <= CardForm.uriLimit, "a long URI")
        let read = try? CardForm(uri: card.uri)
        try demand(read?.root == card.root && read?.uri == card.uri, "a URI is read as another")
        try demand(read.map { Array($0.name.utf8) == Array(card.name.utf8) } ?? false, "another name")
    }

    private static func cardURI(_ input: inout FormInput) throws {
        guard let card = card(&input) else { return }
        try uri(card)
        let text = input.changed(card.uri)
        guard let read = try? CardForm(uri: text) else { return }
        try demand(Array(read.uri.utf8) == Array(text.utf8), "a card has two URIs")
        // 48 bits of a digest keep a fuzzer from finding another.
        try demand(Array(read.name.utf8) == Array(card.name.utf8) && read.root == card.root, "an altered URI is read")
    }

    // MARK: The directory

    private static func directory(_ input: inout FormInput) throws {
        let device = FormDevice.all[0]
        let published = PublishedDevice(
            id: device.id, bundle: device.bundle, oneTime: Array(device.oneTime.prefix(input.byte() % 4)))
        let (nonce, list) = ([UInt8](repeating: 9, count: 32), FormDevice.list(&input))
        let message: DirectoryMessage =
            switch input.byte() % 11 {
            case 0: .challenge(nonce: nonce, account: input.text())
            case 1: .low
            case 2: .proof(nonce: nonce, account: "a", list, published, signedBy: device.identity)
            case 3: .find(nick: input.text())
            case 4: .replenish(device.oneTime)
            case 5: .list(list)
            case 6: .done(oneTime: input.byte())
            case 7: .refused(input.text())
            case 8: .found(.outsider)
            case 9: .found(.legacy)
            default: .found(.capable(account: input.text(), list, [published]))
            }
        let genuine = message.bytes
        try demand((try? DirectoryMessage(genuine)) == message, "a message is read as another")
        let bytes = input.changed(genuine)
        guard let read = try? DirectoryMessage(bytes) else { return }
        let written = read.bytes
        try demand((try? DirectoryMessage(written)) == read, "a message is written as another")
        if written != bytes { try demand(!isText(bytes), "a message has two forms") }
        guard case .publish(let list, let shown, let signature) = read else { return }
        try demand(shown.oneTime.count <= PublishedDevice.oneTimeLimit, "too many keys")
        for (nonce, account) in [(nonce, "a"), (nonce, "b"), ([UInt8](repeating: 8, count: 32), "a")]
        where DirectoryMessage.isProof(signature, nonce: nonce, account: account, list, shown) {
            try demand(read == message && account == "a" && nonce[0] == 9, "an altered proof is accepted")
        }
    }

    // MARK: Published keys

    private static func keys(_ device: FormDevice, _ list: DeviceList) -> DeviceKeys {
        DeviceKeys(device.bundle, of: device.id, root: list.root, account: "a", signedBy: device.identity)
    }

    private static func published(_ input: inout FormInput) throws {
        let list = FormDevice.list(&input)
        let genuine = PublishedKeys(
            deviceList: list, devices: FormDevice.all.prefix(input.byte() % 4).map { keys($0, list) })
        try demand((try? PublishedKeys(genuine.bytes)) == genuine, "keys are read as others")
        let bytes = input.changed(genuine.bytes)
        guard let read = try? PublishedKeys(bytes) else { return }
        try demand(read.bytes == bytes, "keys are written in other bytes")
        for device in read.confirmed(for: "a") {
            try demand(
                genuine.devices.contains(device) && read.deviceList.root == list.root, "altered keys are confirmed")
        }
        try demand(read.confirmed(for: "b").isEmpty, "keys are confirmed for another account")
    }

    private static func deviceRequest(_ input: inout FormInput) throws {
        let device = FormDevice.all[1]
        let genuine = DeviceRequest(root: FormDevice.all[0].list.root, keys: keys(device, FormDevice.all[0].list))
        try demand((try? DeviceRequest(genuine.bytes)) == genuine, "a request is read as another")
        let bytes = input.changed(genuine.bytes)
        guard let read = try? DeviceRequest(bytes) else { return }
        try demand(read.bytes == bytes && bytes.count <= DeviceRequest.maximumLength, "a request in other bytes")
        if read.keys.isConfirmed(root: read.root, account: "a") {
            try demand(read == genuine, "an altered request is confirmed")
        }
    }
}
