import NIOCore

/// Rooms of the sink: joining, and one message to all other members.
extension SinkConnection {
    /// Room for the nicks of one line of names: a line of 512 bytes less what stands before them.
    private static let namesLimit = 400

    /// Puts the client into a room and tells all members.
    func join(_ name: String, _ tags: MessageTags) {
        guard name.hasPrefix("#"), self.rooms.insert(name).inserted else {
            return self.reply("403 \(self.nick) \(name) :No such channel", tags)
        }
        self.directory.rooms[name, default: []].append(self)
        let members = self.directory.rooms[name] ?? []
        for member in members {
            let isExtended = member.capabilities.contains(.extendedJoin)
            let account = self.directory.logsIn ? self.nick : "*"
            let ending = isExtended ? " \(account) :bench" : ""
            member.write { $0.writeString(":\(self.prefix) JOIN \(name)\(ending)\r\n") }
        }
        var names = ""
        for member in members {
            if names.utf8.count + member.nick.utf8.count > Self.namesLimit {
                self.reply("353 \(self.nick) = \(name) :\(names)", tags)
                names = ""
            }
            names += names.isEmpty ? member.nick : " \(member.nick)"
        }
        self.reply("353 \(self.nick) = \(name) :\(names)", tags)
        self.reply("366 \(self.nick) \(name) :End of /NAMES list.", tags)
    }

    /// Takes the client, who has gone, out of all rooms.
    func leaveRooms() {
        for name in self.rooms {
            self.directory.rooms[name]?.removeAll { $0 === self }
            if self.directory.rooms[name]?.isEmpty == true { self.directory.rooms[name] = nil }
        }
        self.rooms = []
    }

    /// Writes a message to all other members of a room. It is put together once for all that have the same
    /// capabilities, so that the sink costs little beside what stands in front of it.
    func fanOut(
        _ verb: UnsafeRawBufferPointer, _ target: UnsafeRawBufferPointer, _ text: UnsafeRawBufferPointer?,
        client: UnsafeRawBufferPointer?
    ) {
        var line = ByteBuffer()
        var written: SinkCapabilities?
        for member in self.directory.rooms[target.foldedString] ?? [] where member !== self {
            if written != member.capabilities {
                line.clear()
                member.write(verb, target, text, from: self.prefix, label: nil, client: client, to: &line)
                written = member.capabilities
            }
            member.write { $0.writeImmutableBuffer(line) }
        }
    }
}
