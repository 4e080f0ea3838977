import HTTPCodec
import JSONGateway
import Testing

/// Every endpoint of the Matrix client-server API has a label in the shipped mapping.
@Suite struct MatrixEndpointTests {
    /// The endpoints of the specification (unstable version of July 2026, which holds v1.16 and what was removed since
    /// v1.1), with the parameters as it names them.
    static let endpoints = """
        GET /.well-known/matrix/client
        GET /.well-known/matrix/policy_server
        GET /.well-known/matrix/support
        GET,PUT /_matrix/client/v1/admin/lock/{userId}
        GET,PUT /_matrix/client/v1/admin/suspend/{userId}
        POST /_matrix/client/v1/appservice/{appserviceId}/ping
        GET /_matrix/client/v1/auth_metadata
        POST /_matrix/client/v1/login/get_token
        GET /_matrix/client/v1/media/config
        GET /_matrix/client/v1/media/download/{serverName}/{mediaId}
        GET /_matrix/client/v1/media/download/{serverName}/{mediaId}/{fileName}
        GET /_matrix/client/v1/media/preview_url
        GET /_matrix/client/v1/media/thumbnail/{serverName}/{mediaId}
        GET /_matrix/client/v1/mutual_rooms
        GET /_matrix/client/v1/register/m.login.registration_token/validity
        GET /_matrix/client/v1/room_summary/{roomIdOrAlias}
        GET /_matrix/client/v1/rooms/{roomId}/hierarchy
        GET /_matrix/client/v1/rooms/{roomId}/relations/{eventId}
        GET /_matrix/client/v1/rooms/{roomId}/relations/{eventId}/{relType}
        GET /_matrix/client/v1/rooms/{roomId}/relations/{eventId}/{relType}/{eventType}
        GET /_matrix/client/v1/rooms/{roomId}/threads
        GET /_matrix/client/v1/rooms/{roomId}/timestamp_to_event
        GET,POST /_matrix/client/v3/account/3pid
        POST /_matrix/client/v3/account/3pid/add
        POST /_matrix/client/v3/account/3pid/bind
        POST /_matrix/client/v3/account/3pid/delete
        POST /_matrix/client/v3/account/3pid/email/requestToken
        POST /_matrix/client/v3/account/3pid/msisdn/requestToken
        POST /_matrix/client/v3/account/3pid/unbind
        POST /_matrix/client/v3/account/deactivate
        POST /_matrix/client/v3/account/password
        POST /_matrix/client/v3/account/password/email/requestToken
        POST /_matrix/client/v3/account/password/msisdn/requestToken
        GET /_matrix/client/v3/account/whoami
        GET /_matrix/client/v3/admin/whois/{userId}
        GET /_matrix/client/v3/capabilities
        POST /_matrix/client/v3/createRoom
        POST /_matrix/client/v3/delete_devices
        GET /_matrix/client/v3/devices
        DELETE,GET,PUT /_matrix/client/v3/devices/{deviceId}
        PUT /_matrix/client/v3/directory/list/appservice/{networkId}/{roomId}
        GET,PUT /_matrix/client/v3/directory/list/room/{roomId}
        DELETE,GET,PUT /_matrix/client/v3/directory/room/{roomAlias}
        GET /_matrix/client/v3/events
        GET /_matrix/client/v3/events/{eventId}
        GET /_matrix/client/v3/initialSync
        POST /_matrix/client/v3/join/{roomIdOrAlias}
        GET /_matrix/client/v3/joined_rooms
        GET /_matrix/client/v3/keys/changes
        POST /_matrix/client/v3/keys/claim
        POST /_matrix/client/v3/keys/device_signing/upload
        POST /_matrix/client/v3/keys/query
        POST /_matrix/client/v3/keys/signatures/upload
        POST /_matrix/client/v3/keys/upload
        POST /_matrix/client/v3/knock/{roomIdOrAlias}
        GET,POST /_matrix/client/v3/login
        GET /_matrix/client/v3/login/sso/redirect
        GET /_matrix/client/v3/login/sso/redirect/{idpId}
        POST /_matrix/client/v3/logout
        POST /_matrix/client/v3/logout/all
        GET /_matrix/client/v3/notifications
        GET,PUT /_matrix/client/v3/presence/{userId}/status
        GET /_matrix/client/v3/profile/{userId}
        DELETE,GET,PUT /_matrix/client/v3/profile/{userId}/{keyName}
        GET,POST /_matrix/client/v3/publicRooms
        GET /_matrix/client/v3/pushers
        POST /_matrix/client/v3/pushers/set
        GET /_matrix/client/v3/pushrules/
        GET /_matrix/client/v3/pushrules/global/
        DELETE,GET,PUT /_matrix/client/v3/pushrules/global/{kind}/{ruleId}
        GET,PUT /_matrix/client/v3/pushrules/global/{kind}/{ruleId}/actions
        GET,PUT /_matrix/client/v3/pushrules/global/{kind}/{ruleId}/enabled
        POST /_matrix/client/v3/refresh
        POST /_matrix/client/v3/register
        GET /_matrix/client/v3/register/available
        POST /_matrix/client/v3/register/email/requestToken
        POST /_matrix/client/v3/register/msisdn/requestToken
        DELETE,GET,PUT /_matrix/client/v3/room_keys/keys
        DELETE,GET,PUT /_matrix/client/v3/room_keys/keys/{roomId}
        DELETE,GET,PUT /_matrix/client/v3/room_keys/keys/{roomId}/{sessionId}
        GET,POST /_matrix/client/v3/room_keys/version
        DELETE,GET,PUT /_matrix/client/v3/room_keys/version/{version}
        GET /_matrix/client/v3/rooms/{roomId}/aliases
        POST /_matrix/client/v3/rooms/{roomId}/ban
        GET /_matrix/client/v3/rooms/{roomId}/context/{eventId}
        GET /_matrix/client/v3/rooms/{roomId}/event/{eventId}
        POST /_matrix/client/v3/rooms/{roomId}/forget
        GET /_matrix/client/v3/rooms/{roomId}/initialSync
        POST /_matrix/client/v3/rooms/{roomId}/invite
        POST /_matrix/client/v3/rooms/{roomId}/join
        GET /_matrix/client/v3/rooms/{roomId}/joined_members
        POST /_matrix/client/v3/rooms/{roomId}/kick
        POST /_matrix/client/v3/rooms/{roomId}/leave
        GET /_matrix/client/v3/rooms/{roomId}/members
        GET /_matrix/client/v3/rooms/{roomId}/messages
        POST /_matrix/client/v3/rooms/{roomId}/read_markers
        POST /_matrix/client/v3/rooms/{roomId}/receipt/{receiptType}/{eventId}
        PUT /_matrix/client/v3/rooms/{roomId}/redact/{eventId}/{txnId}
        POST /_matrix/client/v3/rooms/{roomId}/report
        POST /_matrix/client/v3/rooms/{roomId}/report/{eventId}
        PUT /_matrix/client/v3/rooms/{roomId}/send/{eventType}/{txnId}
        GET /_matrix/client/v3/rooms/{roomId}/state
        GET,PUT /_matrix/client/v3/rooms/{roomId}/state/{eventType}/{stateKey}
        PUT /_matrix/client/v3/rooms/{roomId}/typing/{userId}
        POST /_matrix/client/v3/rooms/{roomId}/unban
        POST /_matrix/client/v3/rooms/{roomId}/upgrade
        POST /_matrix/client/v3/search
        PUT /_matrix/client/v3/sendToDevice/{eventType}/{txnId}
        GET /_matrix/client/v3/sync
        GET /_matrix/client/v3/thirdparty/location
        GET /_matrix/client/v3/thirdparty/location/{protocol}
        GET /_matrix/client/v3/thirdparty/protocol/{protocol}
        GET /_matrix/client/v3/thirdparty/protocols
        GET /_matrix/client/v3/thirdparty/user
        GET /_matrix/client/v3/thirdparty/user/{protocol}
        GET,PUT /_matrix/client/v3/user/{userId}/account_data/{type}
        POST /_matrix/client/v3/user/{userId}/filter
        GET /_matrix/client/v3/user/{userId}/filter/{filterId}
        POST /_matrix/client/v3/user/{userId}/openid/request_token
        GET,PUT /_matrix/client/v3/user/{userId}/rooms/{roomId}/account_data/{type}
        GET /_matrix/client/v3/user/{userId}/rooms/{roomId}/tags
        DELETE,PUT /_matrix/client/v3/user/{userId}/rooms/{roomId}/tags/{tag}
        POST /_matrix/client/v3/user_directory/search
        POST /_matrix/client/v3/users/{userId}/report
        GET /_matrix/client/v3/voip/turnServer
        GET /_matrix/client/versions
        POST /_matrix/media/v1/create
        GET /_matrix/media/v3/config
        GET /_matrix/media/v3/download/{serverName}/{mediaId}
        GET /_matrix/media/v3/download/{serverName}/{mediaId}/{fileName}
        GET /_matrix/media/v3/preview_url
        GET /_matrix/media/v3/thumbnail/{serverName}/{mediaId}
        POST /_matrix/media/v3/upload
        PUT /_matrix/media/v3/upload/{serverName}/{mediaId}
        """

    private static func filled(_ path: Substring) -> String {
        path.split(separator: "/", omittingEmptySubsequences: false).map { segment in
            switch segment {
            case "{roomId}", "{roomIdOrAlias}": "%21room%3Aexample.org"
            case "{roomAlias}": "%23room%3Aexample.org"
            case "{userId}": "%40alice%3Aexample.org"
            case "{eventType}": "m.room.topic"
            case let name where name.hasPrefix("{"): "x1"
            case let literal: String(literal)
            }
        }.joined(separator: "/")
    }

    @Test func everyEndpointHasALabel() throws {
        let mapping = try shipped("matrix")
        var count = 0
        for line in Self.endpoints.split(separator: "\n") {
            let words = line.split(separator: " ")
            for method in words[0].split(separator: ",") {
                for version in words[1].contains("/v3/") ? ["/v3/", "/r0/"] : ["/v1/"] {
                    let path = Self.filled(words[1]).replacing("/v3/", with: version)
                    let label = mapping.route(for: RequestHead(String(method), path))?.route.label
                    #expect(label != nil, "\(method) \(path) has no label")
                    count += 1
                }
            }
        }
        #expect(count > 290)
    }

    @Test(arguments: [
        ("PUT", "/rooms/%21a/send/m.room.message/1", Mapping.Label.content),
        ("PUT", "/rooms/%21a/send/m.reaction/1", .control),
        ("PUT", "/rooms/%21a/send/m.room.encrypted/1", .passthrough),
        ("PUT", "/rooms/%21a/send/m.sticker/1", .media),
        ("PUT", "/rooms/%21a/send/m.call.invite/1", .passthrough),
        ("PUT", "/rooms/%21a/send/m.poll.start/1", .refused),
        ("PUT", "/rooms/%21a/send/org.example.note/1", .refused),
        ("POST", "/rooms/%21a/send/m.room.message", .refused),
        ("PUT", "/rooms/%21a/redact/%24e/1", .control),
        ("PUT", "/rooms/%21a/state/m.room.name", .control),
        ("PUT", "/rooms/%21a/state/m.room.name/", .control),
        ("PUT", "/rooms/%21a/state/m.space.child/%21b", .passthrough),
        ("PUT", "/rooms/%21a/state/m.room.message/x", .refused),
        ("PUT", "/rooms/%21a/state/org.example.note", .refused),
        ("GET", "/sync?since=s1", .sync),
        ("GET", "/sync?timeout=0", .history),
        ("GET", "/rooms/%21a/messages?dir=b", .history),
        ("GET", "/rooms/%21a/context/%24e", .history),
        ("GET", "/rooms/%21a/event/%24e", .history),
        ("POST", "/search", .search),
        ("GET", "/notifications", .history),
        ("POST", "/createRoom", .passthrough),
        ("POST", "/keys/upload", .passthrough),
        ("GET", "/account/whoami", .passthrough),
        ("OPTIONS", "/rooms/%21a/send/m.room.message/1", .passthrough),
    ]) func theLabelsAreRight(_ method: String, _ path: String, _ label: Mapping.Label) throws {
        let mapping = try shipped("matrix")
        for version in ["r0", "v3"] {
            let head = RequestHead(method, "/_matrix/client/\(version)\(path)")
            #expect(mapping.route(for: head)?.route.label == label)
        }
    }

    @Test(arguments: [
        ("POST", "/_matrix/media/v3/upload", Mapping.Label.upload), ("POST", "/_matrix/media/r0/upload", .upload),
        ("PUT", "/_matrix/media/v3/upload/example.org/abc?filename=x", .upload),
        ("POST", "/_matrix/media/v1/create", .passthrough),
        ("GET", "/_matrix/client/v1/media/download/example.org/abc", .download),
        ("GET", "/_matrix/client/v1/media/download/example.org/abc/name.png", .download),
        ("GET", "/_matrix/media/v3/thumbnail/example.org/abc", .download),
        ("GET", "/_matrix/client/v1/media/config", .passthrough),
        ("POST", "/_matrix/client/unstable/org.matrix.simplified_msc3575/sync?pos=1", .sync),
        ("POST", "/_matrix/client/v4/sync", .sync),
        ("GET", "/", .passthrough), ("GET", "/_synapse/client/pick_idp", .passthrough),
        ("POST", "/_synapse/client/pick_username/account_details", .passthrough),
        ("GET", "/_matrix/static/client/login/style.css", .passthrough),
        ("GET", "/_synapse/admin/v1/rooms", .passthrough),
        ("POST", "/_synapse/admin/v1/send_server_notice", .refused),
        ("PUT", "/_synapse/admin/v1/send_server_notice/t1", .refused),
        ("GET", "/_matrix/media/v3/config", .passthrough),
        // The links of sealed texts.
        ("GET", "/_matrix/media/v3/preview_url?url=https%3A%2F%2Fexample.org", .refused),
        ("GET", "/_matrix/media/r0/preview_url?url=https%3A%2F%2Fexample.org&ts=1", .refused),
        ("GET", "/_matrix/client/v1/media/preview_url?url=https%3A%2F%2Fexample.org", .refused),
        ("GET", "/_matrix/client/v1/rooms/%21a/relations/%24e/m.thread", .history),
        ("OPTIONS", "/_matrix/client/v3/login", .passthrough),
    ]) func filesAndRelations(_ method: String, _ target: String, _ label: Mapping.Label) throws {
        #expect(try shipped("matrix").route(for: RequestHead(method, target))?.route.label == label)
    }

    /// What is in no specification that we know fits nothing.
    @Test(arguments: [
        ("POST", "/_matrix/client/unstable/org.example.sync/sync"), ("GET", "/_synapse/other"),
        ("PUT", "/_matrix/client/v4/rooms/%21a/send/m.room.message/1"), ("PUT", "/_matrix/client/v3/rooms/%21a/send"),
        ("PUT", "/_matrix/client/v3/rooms/%21a%2Fsend%2Fx/typing/u"), ("GET", "/_matrix/client/api/v1/sync"),
        ("PUT", "/_matrix/client/v3//rooms/%21a/send/m.room.message/1"), ("POST", "/"),
    ]) func theRestIsUnlabelled(_ method: String, _ target: String) throws {
        #expect(try shipped("matrix").route(for: RequestHead(method, target)) == nil)
    }
}
