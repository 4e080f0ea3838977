// Control messages that devices send each other inside envelopes: the text of a body of the kind `control`.

package import DoubleRatchet
package import Envelope

/// One control message: its number, then its fields.
package enum ControlMessage: Sendable {
    /// 1: a device of this list has started a session and asks for an ``acknowledge``.
    case ready(DeviceList)
    /// 2: the session is established on the other side as well.
    case acknowledge(DeviceList)
    /// 3: a sender key for the room of this folded name, and the number of messages under each of the reader's earlier
    /// sender keys: id (4 B) and count (4 B) of each.
    case senderKey(room: String, SenderKeyDistribution, ended: [EndedKey])
    /// 4: requests the sender key for a room: a message under it could not be opened.
    case senderKeyWanted(room: String)
    /// 5: this list has adopted the reader: it is the reader's own list from now on. Where keys are published, a later
    /// version of the reader's own list.
    case adopted(DeviceList)
    /// 6: a request for a room; see ``RoomRequest``.
    case roomRequest(RoomRequest)

    package var body: Body { Body(kind: .control, text: bytes) }

    private var bytes: [UInt8] {
        switch self {
        case .ready(let deviceList): return [1] + deviceList.bytes
        case .acknowledge(let deviceList): return [2] + deviceList.bytes
        case .senderKey(let room, let distribution, let ended):
            var output: [UInt8] = [3]
            output.append(field: Array(room.utf8))
            distribution.serialize(into: &output)
            for key in ended {
                output.append(bigEndian: key.id)
                output.append(bigEndian: key.count)
            }
            return output
        case .senderKeyWanted(let room): return [4] + Array(room.utf8)
        case .adopted(let deviceList): return [5] + deviceList.bytes
        case .roomRequest(let request): return [6] + request.bytes
        }
    }

    /// - Throws: ``EnvelopeError``; ``EnvelopeError/unsupportedKind(_:)`` if this version does not know the number.
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        switch try cursor.byte() {
        case 1: self = .ready(try DeviceList(cursor.rest()))
        case 2: self = .acknowledge(try DeviceList(cursor.rest()))
        case 3:
            let room = String(decoding: try cursor.field(), as: UTF8.self)
            let key = try cursor.take(SenderKeyDistribution.byteCount)
            guard let distribution = try? SenderKeyDistribution(serialized: key.span) else { throw .malformed }
            var ended: [EndedKey] = []
            while !cursor.isAtEnd { ended.append(.init(id: try cursor.uint32(), count: try cursor.uint32())) }
            self = .senderKey(room: room, distribution, ended: ended)
        case 4: self = .senderKeyWanted(room: String(decoding: cursor.rest(), as: UTF8.self))
        case 5: self = .adopted(try DeviceList(cursor.rest()))
        case 6: self = .roomRequest(try RoomRequest(cursor.rest()))
        case let other: throw .unsupportedKind(other)
        }
    }
}
