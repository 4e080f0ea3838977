import PeerKit

/// The chat's REST requests. The long poll is its caller's business: it asks again.
extension Chat {
    mutating func answer(_ request: Request, at time: Int) -> Answer {
        do {
            return try perform(request, at: time)
        } catch {
            return Answer(error)
        }
    }

    private mutating func perform(_ request: Request, at time: Int) throws(Refusal) -> Answer {
        let path = request.path
        switch (request.method, path.first ?? "", path.count) {
        case ("GET", "health", 1):
            return Answer(200, ["ok": true])
        case ("POST", "accounts", 1):
            let body = try request.json()
            let user = body["user"].string ?? ""
            try register(user, body["password"].string ?? "")
            return Answer(201, ["id": .string(user)])
        case ("POST", "login", 1):
            let body = try request.json()
            let user = body["user"].string ?? ""
            return Answer(
                200, ["token": .string(try login(user, body["password"].string ?? "")), "id": .string(user)])
        default:
            let user = try account(request.token)
            guard request.claimedUser ?? user == user else {
                throw Refusal(401, "unauthorized", "the token is another's")
            }
            return try perform(request, by: user, at: time)
        }
    }

    private mutating func perform(
        _ request: Request, by user: String, at time: Int
    ) throws(Refusal) -> Answer {
        let path = request.path
        switch (request.method, path.first ?? "", path.count) {
        case ("POST", "logout", 1):
            logout(request.token ?? "")
            return .done
        case ("GET", "me", 1):
            return Answer(200, Self.profile(user))
        case ("GET", "users", 2):
            guard passwords[path[1]] != nil else { throw .notFound("nobody is called \(path[1])") }
            return Answer(200, Self.profile(path[1]))
        case ("GET", "search", 1):
            return Answer(200, Self.list(search(request.query("text") ?? "", for: user)))
        case ("GET", "updates", 1):
            let since = request.query("since").flatMap(Int.init) ?? 0
            let found = updates(since: since, for: user).mapValues(Self.list)
            return Answer(200, ["next": .integer(position), "conversations": .object(found)])
        case ("POST", "files", 1):
            return Answer(201, ["file_id": .string(keep(request.body))])
        case ("GET", "files", 2):
            return Answer(try file(path[1]))
        case ("POST", "call", 1): return try call(request, by: user, at: time)
        case ("POST", "send", 1): return try send(request, by: user, at: time)
        case ("GET", "messages", 2), ("PATCH", "messages", 2): return try message(request, by: user)
        case ("GET", "rendered", 2): return try rendered(path[1], for: user)
        case (_, "conversations", _):
            return try conversations(request, by: user, at: time)
        default:
            throw .notFound("there is nothing at \(request.method) \(request.target)")
        }
    }

    private mutating func conversations(
        _ request: Request, by user: String, at time: Int
    ) throws(Refusal) -> Answer {
        let path = request.path
        switch (request.method, path.count, path.count > 2 ? path[2] : "") {
        case ("POST", 1, _):
            let body = try request.json()
            let members = body["members"].array.compactMap(\.string)
            let id = try open(body["id"].string, title: body["title"].string, members: members, by: user)
            return Answer(201, ["id": .string(id)])
        case ("GET", 1, _):
            let mine = conversations.filter { $0.value.members.contains(user) }.sorted { $0.key < $1.key }
            return Answer(200, ["conversations": .array(mine.map { Self.json($0.key, $0.value, withLast: true) })])
        case ("GET", 2, _):
            return Answer(200, Self.json(path[1], try conversation(path[1], of: user), withLast: false))
        case ("GET", 3, "members"):
            return Answer(200, Self.page(of: try conversation(path[1], of: user).members, request))
        case ("PUT", 3, "title"):
            try entitle(path[1], try request.json()["title"].string ?? "", by: user)
            return .done
        case ("PUT", 4, "members"):
            try add(path[3], to: path[1], by: user)
            return .done
        case ("DELETE", 4, "members"):
            try remove(path[3], from: path[1], by: user)
            return .done
        case ("POST", 3, "typing"):
            try pass("typing", [:], in: path[1], by: user)
            return .done
        case ("PUT", 3, "read"):
            try pass("read", ["message_id": try request.json()["message_id"]], in: path[1], by: user)
            return .done
        case (_, 3..., "messages"):
            return try messages(request, in: path[1], by: user, at: time)
        default:
            throw .notFound("there is nothing at \(request.method) \(request.target)")
        }
    }

    private mutating func messages(
        _ request: Request, in id: String, by user: String, at time: Int
    ) throws(Refusal) -> Answer {
        let path = request.path
        switch (request.method, path.count) {
        case ("POST", 3):
            let (message, isNew) = try post(try request.json(), in: id, by: user, at: time)
            var json: JSONValue = ["message_id": .string(message.id), "time": .integer(message.time)]
            json["id"] = message.fields["id"]
            return Answer(isNew ? 201 : 200, json)
        case ("GET", 3):
            let limit = request.query("limit").flatMap(Int.init) ?? 50
            guard (1...1000).contains(limit) else { throw .invalid("limit is to be from 1 to 1000") }
            return Answer(
                200, Self.list(try history(id, before: request.query("before"), limit: limit, for: user)))
        case ("GET", 4):
            return Answer(200, try message(path[3], in: id, for: user).json)
        case ("PATCH", 4):
            try edit(path[3], try request.json(), in: id, by: user)
            return Answer(200, ["message_id": .string(path[3]), "edited": true])
        case ("DELETE", 4):
            try delete(path[3], in: id, by: user)
            return .done
        case ("PUT", 6) where path[4] == "reactions", ("DELETE", 6) where path[4] == "reactions":
            _ = try message(path[3], in: id, for: user)
            try pass(
                "reaction",
                ["message_id": .string(path[3]), "name": .string(path[5]), "on": .bool(request.method == "PUT")],
                in: id, by: user)
            return .done
        default:
            throw .notFound("there is nothing at \(request.method) \(request.target)")
        }
    }

    private static func profile(_ user: String) -> JSONValue {
        ["id": .string(user), "name": .string(user.prefix(1).uppercased() + user.dropFirst())]
    }

    /// A page of members: by `page`, by `offset`, or by `cursor`, which is an offset too. Two members are on a page at most.
    private static func page(of members: [String], _ request: Request) -> JSONValue {
        let size = min(request.query("count").flatMap(Int.init) ?? 2, 2)
        let page = request.query("page").flatMap(Int.init).map { $0 * size }
        let start = page ?? (request.query("offset") ?? request.query("cursor")).flatMap(Int.init) ?? 0
        let first = min(max(start, 0), members.count)
        let end = min(first + size, members.count)
        var answer: JSONValue = ["people": .array(members[first..<end].map { ["id": .string($0)] })]
        answer["next"] = end < members.count ? .string("\(end)") : .string("")
        return answer
    }

    private static func list(_ messages: [Message]) -> JSONValue {
        ["messages": .array(messages.map(\.json))]
    }

    private static func json(_ id: String, _ conversation: Conversation, withLast: Bool) -> JSONValue {
        var members: [String: JSONValue] = [
            "id": .string(id), "title": .string(conversation.title ?? ""),
            "members": .array(conversation.members.map(JSONValue.string)),
        ]
        if withLast { members["last"] = conversation.messages.last?.json ?? .null }
        return .object(members)
    }
}
