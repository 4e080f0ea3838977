// The lookup of a conversation's members, over one answer or several. The result is complete or unknown, so that no member
// is left out whose page the gateway does not get.

package import HTTPCodec
package import JSONCodec
package import NIOCore
package import Protection

/// How a backend gives the members of a conversation in pages.
package struct MemberPaging: Sendable, Equatable {
    package enum Order: Sendable, Equatable {
        /// `{page}` counts pages.
        case number(first: Int)
        /// `{offset}` counts members.
        case offset
        /// `{cursor}` is the value at this path of the page before. The first request has no cursor.
        case cursor(JSONPath)
        /// `{last}` is the last value at this path of the page before, or its last member if nil. The first request has none.
        case last(JSONPath?)
    }

    /// The query of a page, with one of the names above in it: `page={page}&per_page=200`.
    package var query: String
    package var order: Order

    package init(query: String, order: Order) { (self.query, self.order) = (query, order) }
}

/// One lookup of members that may need several requests.
package struct MemberPages: Sendable {
    /// Ours: requests of one lookup: ``MemberCache/memberLimit`` members need 100 at the 200 of a page that is usual. The
    /// writing client waits for all of them.
    package static let limit = 128
    /// Ours: maximum length of a cursor, in bytes.
    package static let cursorLimit = 4096

    package enum Step: Sendable {
        case ask(Lookup)
        /// All members.
        case found([AccountID])
        /// A page is missing, or there are too many.
        case unknown
    }

    private let source: MembersSource
    private let conversation: String
    private let credential: Credential
    private var members: [AccountID] = []
    private var known: Set<AccountID> = []
    private var pages = 0
    /// The members on all pages, counted as often as they come.
    private var received = 0
    private var cursor: String?
    private var cursors: Set<String> = []

    package init(_ source: MembersSource, of conversation: String, by credential: Credential) {
        (self.source, self.conversation, self.credential) = (source, conversation, credential)
    }

    /// The request of the next page.
    package var lookup: Lookup {
        var target = Mapping.target(source.target, "conversation", conversation)
        if let query { target += (target.contains("?") ? "&" : "?") + query }
        return Lookup(.members, credential.question(target), limit: MembersSource.answerLimit)
    }

    private var query: String? {
        guard let paging = source.paging else { return nil }
        switch paging.order {
        case .number(let first): return paging.query.replacing("{page}", with: "\(first + pages)")
        case .offset: return paging.query.replacing("{offset}", with: "\(received)")
        case .cursor: return cursor.map { paging.query.replacing("{cursor}", with: PercentCoding.segment($0)) }
        case .last: return cursor.map { paging.query.replacing("{last}", with: PercentCoding.segment($0)) }
        }
    }

    /// Takes the backend's answer to ``lookup``.
    package mutating func take(_ head: ResponseHead, _ body: ByteBuffer) -> Step {
        guard let page = source.members(in: head, body) else { return .unknown }
        guard let paging = source.paging else { return .found(page) }
        pages += 1
        received += page.count
        let before = members.count
        for member in page where known.insert(member).inserted { members.append(member) }
        guard members.count <= MemberCache.memberLimit else { return .unknown }
        switch paging.order {
        // A page may be shorter than asked for although others follow, so only one without new members is the end.
        case .number, .offset: if members.count == before { return .found(members) }
        case .last(let path):
            guard members.count > before else { return .found(members) }
            guard let next = path.map({ Self.last(in: body, at: $0) }) ?? page.last?.name,
                next.utf8.count <= Self.cursorLimit, cursors.insert(next).inserted
            else { return .unknown }
            cursor = next
        case .cursor(let path):
            switch Self.cursor(in: body, at: path) {
            case .none: return .found(members)
            case .next(let next):
                guard cursors.insert(next).inserted else { return .unknown }
                cursor = next
            case .unreadable: return .unknown
            }
        }
        return pages < Self.limit ? .ask(lookup) : .unknown
    }

    /// The last value at a path; nil if there is none that can stand in a query.
    private static func last(in body: ByteBuffer, at path: JSONPath) -> String? {
        guard let document = try? JSONDocument(body),
            let place = try? document.places(path, limit: MemberCache.memberLimit).last
        else { return nil }
        return try? document.identifier(place, path.text)
    }

    private enum Next {
        case none
        case next(String)
        case unreadable
    }

    private static func cursor(in body: ByteBuffer, at path: JSONPath) -> Next {
        guard let document = try? JSONDocument(body), let found = try? document.places(path, limit: 2), found.count < 2
        else { return .unreadable }
        guard let place = found.first else { return .none }
        switch document.kind(place) {
        case .null: return .none
        case .string:
            guard let text = try? document.text(place), text.utf8.count <= cursorLimit else { return .unreadable }
            return text.isEmpty ? .none : .next(text)
        case .number: return document.integer(place).map { .next("\($0)") } ?? .unreadable
        case .object, .array, .boolean: return .unreadable
        }
    }
}
