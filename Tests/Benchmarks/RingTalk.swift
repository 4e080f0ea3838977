import NIOCore

extension LoadClient {
    /// Lets each client say one text to each of the next clients in a ring, and waits until all have arrived. Each has
    /// twice as many conversations then.
    ///
    /// - Returns: what went wrong, in words; empty where nothing did.
    func talkInRing(distance: Int) throws -> String {
        try self.onLoop { $0.isRing = true }
        for step in 1...distance {
            try self.onLoop { record in
                let connections = record.connections
                for (index, connection) in connections.enumerated() {
                    connection.sendMessage(0, to: connections[(index + step) % connections.count].nick)
                }
                record.flush()
            }
            try self.wait(Self.firstTextLimit) { record in
                record.faults > 0 || record.ringArrivals >= record.connections.count * step
            }
        }
        return try self.onLoop { record in
            let missing = record.connections.count * distance - record.ringArrivals
            var complaints: [String] = []
            if missing > 0 { complaints.append("\(missing) messages did not arrive") }
            if record.faults > 0 { complaints.append("\(record.faults) faults, the last: `\(record.lastFault)`") }
            return complaints.joined(separator: "; ")
        }
    }
}
